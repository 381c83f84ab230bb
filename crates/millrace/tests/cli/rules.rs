//! `millrace rules` as a user types it.

use std::fs;

use super::folder::Folder;

const RULES: &str = "*filter
:INPUT DROP [0:0]
:ssh - [0:0]
-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT
-A INPUT -p tcp --dport ssh -m set --match-set admins src -j ssh
-A ssh -j ACCEPT
COMMIT
";

#[test]
fn a_rule_set_is_summed_up() {
    let folder = Folder::empty();
    fs::write(folder.path("rules.v4"), RULES).unwrap();
    fs::write(folder.path("sets"), "create admins hash:net\nadd admins 10.0.0.0/8\n").unwrap();
    let expected = "rules.v4: the rule set can be read
  IPv4, 3 rules
  table filter    4 chains, 3 rules
  1 set with 1 entry
  uses: conntrack (1), set (1), tcp (1)
";
    assert_eq!(folder.stdout("rules check rules.v4 --sets sets"), expected);
    let json = folder.json("rules check rules.v4 --json");
    assert_eq!((&json["valid"], &json["family"], &json["rules"]), (&true.into(), &4.into(), &3.into()));
    assert_eq!(json["tables"][0]["chains"][0]["policy"], "DROP");
    let printed = folder.stdout("rules check rules.v4 --print");
    assert!(printed.contains("-A INPUT -p tcp -m tcp --dport 22 -m set --match-set admins src -j ssh\n"), "{printed}");
    folder.millrace("rules check -").write_stdin(RULES).assert().success();
}

#[test]
fn refused_lines_are_named_with_their_reasons() {
    let folder = Folder::empty();
    let text = RULES.replace("-A ssh -j ACCEPT", "-A ssh -m owner --uid-owner 0 -j ACCEPT\n-A ssh --dport 1 -j DROP");
    fs::write(folder.path("rules.v4"), &text).unwrap();
    let (code, error) = folder.fails("rules check rules.v4");
    let expected =
        "rules.v4:6:11: the match owner is not supported: it tests sockets of the host, and a router has none
rules.v4:7:8: `--dport` needs a protocol or a match that has it; write `-p tcp` before it
error: rules.v4: 2 errors; --skip-unsupported leaves out what only Millrace refuses
";
    assert_eq!((code, error.as_str()), (1, expected));
    fs::write(folder.path("rules.v4"), text.replace("--dport 1 ", "")).unwrap();
    let (code, out, error) = folder.run("rules check rules.v4 --skip-unsupported");
    assert_eq!(code, 0, "{error}");
    assert!(error.starts_with("rules.v4:6:11: the match owner"), "{error}");
    assert!(String::from_utf8(out).unwrap().contains("3 rules; 1 line left out"));
    let (code, out, _) = folder.run("rules check rules.v4 --json");
    let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!((code, &json["errors"][0]["feature"]), (1, &"owner".into()));
    fs::write(folder.path("sets"), "create other hash:ip\n").unwrap();
    let (code, error) = folder.fails("rules check rules.v4 --skip-unsupported --sets sets");
    assert!(code == 1 && error.starts_with("rules.v4:5:32: there is no set `admins`"), "{code} {error}");
}

#[test]
fn the_family_is_chosen_or_guessed() {
    let folder = Folder::empty();
    fs::write(folder.path("script"), "ip6tables -A INPUT -s fe80::/10 -j DROP\n").unwrap();
    assert!(folder.stdout("rules check script").contains("IPv6, 1 rule"));
    fs::write(folder.path("plain"), "*filter\nCOMMIT\n").unwrap();
    assert!(folder.stdout("rules check plain").contains("IPv4, 0 rules"));
    assert!(folder.stdout("rules check plain --family 6").contains("IPv6"));
    assert_eq!(folder.fails("rules check plain --family 5").0, 2);
    let (code, error) = folder.fails("rules check nothing");
    assert!(code == 3 && error.contains("can't be read"), "{code} {error}");
}
