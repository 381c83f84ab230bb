//! The live page in a headless browser: what it shows, at two widths, in light and dark, and what it says when the connection breaks.
#![allow(clippy::print_stdout)]

mod browser;
mod cable;
#[path = "../../examples/page/made_up.rs"]
mod made_up;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use browser::{Browser, Look};
use cable::Cable;
use made_up::MadeUp;
use millrace_daemon::{Dropped, HttpServer, Interface, Latest, Routes, Serving, Stats, TopFlow};
use serde_json::{Value, json};

const LOOKS: [Look; 4] = [
    Look { width: 1280, is_dark: false },
    Look { width: 1280, is_dark: true },
    Look { width: 400, is_dark: false },
    Look { width: 400, is_dark: true },
];
/// A name that would run as a script if it were taken for HTML.
const HOSTILE: &str = "<script>window.taken = 1</script><img src=x onerror='window.taken = 1'>&amp;";

fn browser() -> Option<Browser> {
    let browser = Browser::start();
    if browser.is_none() {
        println!("SKIPPED (needs chromium: apt-get install chromium): the live page in a browser");
    }
    browser
}

fn serve(addr: &str, latest: &Arc<Latest>) -> Serving {
    let addr: SocketAddr = addr.parse().expect("it is an address");
    let server = HttpServer::bind(addr).expect("the port is free");
    server.serve(Routes { metrics: false, page: true }, Arc::clone(latest)).expect("there are threads")
}

/// Two minutes and more of a made-up run, all at once.
fn two_minutes(latest: &Latest) -> Stats {
    let mut run = MadeUp::default();
    let mut newest = Stats::default();
    for second in 1..=130 {
        newest = run.next(Duration::from_secs(second));
        latest.set(newest.clone());
    }
    newest
}

/// Another sample a second later, of which every counter is known.
fn second_later(before: &Stats) -> Stats {
    let mut stats = before.clone();
    stats.uptime_ms += 1000;
    for core in &mut stats.cores {
        core.received += 500_000;
        core.received_bytes += 250_000_000;
        core.forwarded += 400_000;
        core.dropped += 100_000;
        core.idle_ns += 250_000_000;
    }
    stats.cores[0].idle_ns -= 250_000_000;
    stats.dropped[0].packets += 400_000;
    stats
}

#[test]
fn it_reads_well_at_any_width_in_light_and_dark() {
    let Some(mut browser) = browser() else { return };
    let latest = Arc::new(Latest::new());
    let serving = serve("127.0.0.1:0", &latest);
    let stats = two_minutes(&latest);
    let later = second_later(&stats);
    browser.open(&format!("http://{}/", serving.addr()));
    browser.wait("document.getElementById('state')?.textContent === 'live'");
    latest.set(later);
    browser.wait("document.getElementById('received').textContent.startsWith('2.00')");
    for look in LOOKS {
        browser.look(look);
        // The charts are drawn anew for another width.
        browser.wait("[...document.querySelectorAll('figure > svg')].every(svg => svg.viewBox.baseVal.width === svg.clientWidth)");
        let Look { width, is_dark } = look;
        browser.save(&format!("page-{width}-{}", if is_dark { "dark" } else { "light" }));
        assert_eq!(browser.value("document.documentElement.scrollWidth"), json!(width), "{look:?} scrolls sideways");
        assert_eq!(browser.value(WIDER), json!([]), "{look:?}: text that is cut off");
        assert_eq!(browser.value(FAINT), json!([]), "{look:?}: text of too little contrast");
    }
    let text = |browser: &mut Browser, id: &str| {
        let text = browser.value(&format!("document.getElementById('{id}').textContent"));
        text.as_str().unwrap_or_default().replace('\u{a0}', " ")
    };
    for (id, shown) in [
        ("function", "firewall"),
        ("about", "under transactional on 4 cores, up 2 min 11 s"),
        ("received", "2.00 Mpps"),
        ("received-bits", "8.00 Gbit/s"),
        ("forwarded", "1.60 Mpps"),
        ("forwarded-share", "80.0 % of received"),
        ("dropped", "400 kpps"),
        ("busiest", "100 %"),
        ("imbalance", "imbalance 1.23 (highest over mean)"),
        ("table-max", "262,144"),
        ("p50", "4.3 µs"),
        ("worst", "2.3 ms"),
    ] {
        assert_eq!(text(&mut browser, id), shown, "{id}");
    }
    assert_eq!(browser.value("document.querySelectorAll('#drops tbody tr').length"), json!(3));
    assert_eq!(browser.value("document.querySelector('#drops td:nth-child(2)').textContent"), json!("400\u{a0}kpps"));
    // 120 rates: a path has a place for each.
    let places = "document.querySelector('#packets path.line').getAttribute('d').split('L').length";
    assert_eq!(browser.value(places), json!(120));
    assert_eq!(browser.value(UNNAMED), json!([]), "elements without a name for those who can't see them");
    let elsewhere = "performance.getEntriesByType('resource').filter(entry => !entry.name.startsWith(origin)).length";
    assert_eq!(browser.value(elsewhere), json!(0), "nothing is loaded from outside");
    // The legend has the values under the pointer: 60 s before the end, at the middle.
    browser.value(POINT);
    let ago = "document.querySelector('#packets li:last-child').textContent";
    assert_eq!(browser.value(ago), json!("60 s ago"));
    assert_ne!(browser.value("document.querySelector('#packets li b').textContent"), json!("2.00\u{a0}Mpps"));
    // A run that gives no samples any more, although the connection stands.
    browser.wait("document.getElementById('state').textContent === 'no new figures'");
}

#[test]
fn a_hundred_cores_have_a_row_each() {
    let Some(mut browser) = browser() else { return };
    let latest = Arc::new(Latest::new());
    let serving = serve("127.0.0.1:0", &latest);
    let mut stats = two_minutes(&latest);
    stats.uptime_ms += 1000;
    stats.cores = stats.cores.iter().cycle().copied().take(104).collect();
    latest.set(stats.clone());
    browser.open(&format!("http://{}/", serving.addr()));
    browser.wait("document.getElementById('state')?.textContent === 'live'");
    latest.set(second_later(&stats));
    browser.wait("document.querySelector('#cores span:last-child')?.textContent === '500\u{a0}kpps'");
    for look in [LOOKS[0], LOOKS[2]] {
        browser.look(look);
        browser.save(&format!("page-{}-cores", look.width));
        let heights =
            "[...new Set([...document.querySelectorAll('#cores li')].map(row => Math.round(row.clientHeight)))]";
        assert_eq!(browser.value(heights).as_array().map(Vec::len), Some(1), "{look:?}: all in one line");
        assert_eq!(browser.value("document.querySelectorAll('#cores li').length"), json!(104));
        assert_eq!(browser.value("document.documentElement.scrollWidth"), json!(look.width));
    }
    // One is busy, the others at three quarters.
    assert_eq!(browser.value("document.getElementById('busiest').textContent"), json!("100\u{a0}%"));
    assert_eq!(browser.value("document.querySelectorAll('#cores .high').length"), json!(1));
}

/// Names are shown as they are, and a run with nothing but zeros, or without cores, has a page, too.
#[test]
fn text_of_the_run_is_never_html() {
    let Some(mut browser) = browser() else { return };
    let latest = Arc::new(Latest::new());
    let serving = serve("127.0.0.1:0", &latest);
    let mut stats = two_minutes(&latest);
    stats.uptime_ms += 1000;
    stats.function = HOSTILE.to_owned();
    stats.engine = HOSTILE.to_owned();
    stats.dropped.push(Dropped { reason: HOSTILE.to_owned(), packets: 7 });
    stats.top_flows.push(TopFlow { flow: HOSTILE.to_owned(), ..TopFlow::default() });
    stats.interfaces.push(Interface {
        name: HOSTILE.to_owned(),
        trouble: Some(HOSTILE.to_owned()),
        counters: vec![(HOSTILE.to_owned(), u64::MAX)],
    });
    latest.set(stats.clone());
    browser.look(LOOKS[2]);
    browser.open(&format!("http://{}/", serving.addr()));
    browser.wait("document.getElementById('state')?.textContent === 'live'");
    let shown = browser.value("document.body.innerText");
    let times = shown.as_str().unwrap_or_default().matches(HOSTILE).count();
    assert_eq!(times, 7, "{shown}");
    assert_eq!(browser.value("document.querySelectorAll('script').length + document.images.length"), json!(1));
    assert_eq!(browser.value("typeof window.taken"), json!("undefined"));
    assert_eq!(browser.value("document.documentElement.scrollWidth"), json!(400));
    let empty = Stats { function: "empty".to_owned(), uptime_ms: stats.uptime_ms + 1000, ..Stats::default() };
    latest.set(empty.clone());
    browser.wait("document.getElementById('function').textContent === 'empty'");
    latest.set(Stats { uptime_ms: empty.uptime_ms + 1000, ..empty });
    browser.wait("document.getElementById('about').textContent.endsWith('13 s')");
    assert_eq!(browser.value("document.getElementById('state').textContent"), json!("live"));
    let hidden = "['table-card', 'latency-card', 'transactions-card', 'interfaces-card'].every(id => document.getElementById(id).hidden)";
    assert_eq!(browser.value(hidden), json!(true));
    assert_eq!(browser.value("/NaN|undefined|null|Infinity/.test(document.body.innerText)"), json!(false));
}

#[test]
fn it_says_when_the_connection_is_lost_and_connects_again() {
    let Some(mut browser) = browser() else { return };
    let latest = Arc::new(Latest::new());
    let serving = serve("127.0.0.1:0", &latest);
    let stats = two_minutes(&latest);
    let mut cable = Cable::plug("127.0.0.1:0".parse().expect("it is an address"), serving.addr());
    browser.look(LOOKS[0]);
    browser.open(&format!("http://{}/", cable.addr()));
    browser.wait("document.getElementById('state')?.textContent === 'live'");
    let addr = cable.addr();
    cable.cut();
    browser.wait("document.getElementById('state').textContent === 'not connected'");
    browser
        .wait("document.getElementById('notice').textContent.startsWith('Connection lost. These figures are from ')");
    browser.save("page-lost");
    let cable = Cable::plug(addr, serving.addr());
    browser.wait("document.getElementById('state').textContent === 'live'");
    assert_eq!(browser.value("document.getElementById('notice').textContent"), Value::from(""));
    let stalls = Stats { stalled: Some(2), ..second_later(&stats) };
    latest.set(stalls);
    browser.wait("document.getElementById('notice').textContent === 'Core 2 stalls: the others wait for it.'");
    // The run ends, and another begins at the same address, whose counters start at zero.
    let addr = serving.addr().to_string();
    drop(serving);
    browser.wait("document.getElementById('state').textContent === 'ended'");
    let latest = Arc::new(Latest::new());
    let serving = serve(&addr, &latest);
    latest.set(MadeUp::default().next(Duration::from_secs(1)));
    browser.wait("document.getElementById('state').textContent === 'live'");
    assert_eq!(browser.value("document.getElementById('received').textContent"), json!("–"));
    drop((cable, serving));
}

/// Moves the pointer to the middle of the plot, between the numbers at its left and its right end.
const POINT: &str = "(() => {
    const canvas = document.querySelector('#packets > svg'), place = canvas.getBoundingClientRect();
    canvas.dispatchEvent(new PointerEvent('pointermove', { clientX: place.left + (58 + place.width - 8) / 2 }));
})()";

/// Elements whose text is wider than they are.
const WIDER: &str = "[...document.body.querySelectorAll('*')]
    .filter(node => node.scrollWidth > node.clientWidth + 1 && node.clientWidth > 1 && getComputedStyle(node).display !== 'inline')
    .map(node => `${node.tagName} ${node.id} ${node.className}`)";

/// Text whose contrast to its background is lower than 4.5 to 1, as the guidelines for accessible pages compute it.
const FAINT: &str = "(() => {
    const parts = text => text.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(part => part / 255)
        .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
        .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
    const behind = node => {
        for (; node; node = node.parentElement) {
            const color = parts(getComputedStyle(node).backgroundColor);
            if (color.length === 3 || color[3] === 1) return color;
        }
        return [255, 255, 255];
    };
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), faint = [];
    let seen = 0;
    while (walker.nextNode()) {
        const node = walker.currentNode.parentElement;
        if (!walker.currentNode.data.trim() || node.tagName === 'SCRIPT' || !node.getClientRects().length) continue;
        const style = getComputedStyle(node);
        const [one, other] = [light(parts(node.closest('svg') ? style.fill : style.color)), light(behind(node))].sort((a, b) => b - a);
        seen += 1;
        if ((one + 0.05) / (other + 0.05) < 4.5) faint.push(`${walker.currentNode.data}: ${((one + 0.05) / (other + 0.05)).toFixed(2)}`);
    }
    return seen > 50 ? faint : ['too little text was seen'];
})()";

/// Sections, charts, meters and tables without a name.
const UNNAMED: &str = "[...document.querySelectorAll('section, svg[role=img], [role=meter], table')]
    .filter(node => {
        const by = node.getAttribute('aria-labelledby');
        return !(node.getAttribute('aria-label') || (by && document.getElementById(by)?.textContent));
    })
    .map(node => `${node.tagName} ${node.id}`)
    .concat(document.documentElement.lang === 'en' && document.querySelectorAll('h1').length === 1 ? [] : ['the page'])";
