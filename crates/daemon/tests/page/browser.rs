//! A headless browser, driven through a pair of pipes by the DevTools protocol: messages of JSON that end in a zero byte.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

/// Programs that are browsers of this kind.
const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
/// Time for the browser to answer. It only bounds a test that has failed.
const WITHIN: Duration = Duration::from_secs(60);

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    /// The number of the last message.
    number: u64,
    /// The page's session.
    session: Option<String>,
    _profile: TempDir,
}

/// How a page is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) width: u32,
    pub(crate) is_dark: bool,
}

impl Browser {
    /// Starts a browser; none if none is installed.
    pub(crate) fn start() -> Option<Self> {
        let path = env::var_os("PATH").unwrap_or_default();
        let is_there = |program: &&&str| env::split_paths(&path).any(|folder| folder.join(program).is_file());
        let program = PROGRAMS.iter().find(is_there)?;
        let profile = tempfile::tempdir().expect("there is room");
        // The browser reads descriptor 3 and writes descriptor 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh", program])
            .args(["--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run"])
            .args(["--disable-dev-shm-usage", "--disable-background-networking", "--hide-scrollbars"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell starts");
        let to = child.stdin.take().expect("it is piped");
        let mut from_browser = BufReader::new(child.stdout.take().expect("it is piped"));
        let (tell, from) = channel();
        thread::spawn(move || {
            let mut message = Vec::new();
            while from_browser.read_until(0, &mut message).is_ok_and(|len| len > 0) {
                let value = serde_json::from_slice(&message[..message.len() - 1]).expect("the browser writes JSON");
                if tell.send(value).is_err() {
                    break;
                }
                message.clear();
            }
        });
        let mut browser = Self { child, to, from, number: 0, session: None, _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let session = browser.call("Target.attachToTarget", json!({ "targetId": target["targetId"], "flatten": true }));
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        browser.call("Page.enable", json!({}));
        browser.call("Runtime.enable", json!({}));
        Some(browser)
    }

    /// Looks at the page in another way.
    pub(crate) fn look(&mut self, Look { width, is_dark }: Look) {
        let metrics = json!({ "width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    pub(crate) fn open(&mut self, url: &str) {
        let opened = self.call("Page.navigate", json!({ "url": url }));
        assert_eq!(opened["errorText"], Value::Null, "{url}");
    }

    /// The value of an expression in the page. A promise is waited for.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let evaluate = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let value = self.call("Runtime.evaluate", evaluate);
        assert_eq!(value["exceptionDetails"], Value::Null, "{expression}");
        value["result"]["value"].clone()
    }

    /// Waits until an expression holds in the page.
    pub(crate) fn wait(&mut self, condition: &str) {
        let looks = format!(
            "new Promise(done => {{ const look = () => ({condition}) ? done(true) : setTimeout(look, 20); look(); }})"
        );
        assert_eq!(self.value(&looks), Value::Bool(true), "{condition}");
    }

    /// The whole page as a PNG picture, if the variable MILLRACE_SCREENSHOTS names a folder to save it in.
    pub(crate) fn save(&mut self, name: &str) {
        let Some(folder) = env::var_os("MILLRACE_SCREENSHOTS") else { return };
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png", "captureBeyondViewport": true }));
        let picture = from_base64(picture["data"].as_str().expect("it is text"));
        std::fs::write(std::path::Path::new(&folder).join(format!("{name}.png")), picture).expect("there is room");
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let mut message = json!({ "id": self.number, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = serde_json::to_vec(&message).expect("it is JSON");
        bytes.push(0);
        self.to.write_all(&bytes).expect("the browser reads");
        loop {
            let answer = self.from.recv_timeout(WITHIN).unwrap_or_else(|_| panic!("no answer to {message}"));
            if answer["id"] == self.number {
                assert_eq!(answer["error"], Value::Null, "{message}");
                return answer["result"].clone();
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It closes when its pipe does; killed, it would leave its children.
        let _ = self.to.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        while self.from.recv_timeout(WITHIN).is_ok() {}
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn from_base64(text: &str) -> Vec<u8> {
    let digit = |sign: u8| match sign {
        b'A'..=b'Z' => sign - b'A',
        b'a'..=b'z' => sign - b'a' + 26,
        b'0'..=b'9' => sign - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::new();
    for four in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = four.iter().enumerate().fold(0, |bits, (at, sign)| bits | u32::from(digit(*sign)) << (26 - 6 * at));
        bytes.extend_from_slice(&bits.to_be_bytes()[..four.len() - 1]);
    }
    bytes
}
