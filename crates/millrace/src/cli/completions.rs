//! Completion scripts: the generated ones, extended with the catalogue: names of functions, and after `--set` the keys of the function on
//! the command line.

use clap::Command;
use clap_complete::Shell;
use nf::{ConfigKey, Description};

use catalogue::{Catalogue, CatalogueEntry};

/// The shell's script.
pub(super) fn script(shell: Shell, mut command: Command, catalogue: &Catalogue) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "millrace", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Bash => bash(&script, catalogue),
        Shell::Zsh => zsh(&script, catalogue),
        Shell::Fish => script + &fish(catalogue),
        _ => script,
    }
}

/// The generated function handles everything except keys.
fn bash(script: &str, catalogue: &Catalogue) -> String {
    let cases = cases(catalogue, |keys| {
        let keys: Vec<String> = keys.iter().map(|key| format!("{}=", key.name)).collect();
        format!("keys='{}'", keys.join(" "))
    });
    let keys = format!(
        r#"
_millrace_keys() {{
    if [[ "$3" != --set ]]; then
        _millrace "$@"
        return
    fi
    local word keys=""
    for word in "${{COMP_WORDS[@]:1}}"; do
        case "$word" in
{cases}        esac
    done
    COMPREPLY=( $(compgen -W "$keys" -- "${{COMP_WORDS[COMP_CWORD]}}") )
    if [[ "$(type -t compopt)" == builtin ]]; then
        compopt -o nospace
    fi
}}
"#
    );
    let (functions, registration) = script.split_at(script.rfind("\nif [[").unwrap_or(script.len()));
    functions.to_owned() + &keys + &registration.replace("complete -F _millrace ", "complete -F _millrace_keys ")
}

fn zsh(script: &str, catalogue: &Catalogue) -> String {
    let cases = cases(catalogue, |keys| {
        let pairs: Vec<String> = keys
            .iter()
            .map(|key| format!("'{}:{}'", key.name.replace(':', "\\:"), key.help.replace('\'', "'\\''")))
            .collect();
        format!("keys=({})", pairs.join(" "))
    });
    let keys = format!(
        r#"
_millrace_keys() {{
    local word
    local -a keys
    for word in $words; do
        case $word in
{cases}        esac
    done
    _describe -t keys 'key' keys -S =
}}
"#
    );
    let (functions, registration) = script.split_at(script.rfind("\nif [ ").unwrap_or(script.len()));
    functions.replace(":KEY=VALUE:_default", ":KEY=VALUE:_millrace_keys") + &keys + registration
}

/// Lines for the catalogue's names and their keys, because the generated fish script leaves out arguments without a flag.
fn fish(catalogue: &Catalogue) -> String {
    let line = |entry: &CatalogueEntry| {
        let Description { name, summary, keys, .. } = entry.description();
        let quoted = |text: &str| text.replace('\\', "\\\\").replace('\'', "\\'");
        let mut out = format!(
            "complete -c millrace -n '__fish_seen_subcommand_from functions run verify bench advise profile' -f -a {name} -d '{}'\n",
            quoted(summary)
        );
        for ConfigKey { name: key, help, .. } in *keys {
            out += &format!(
                "complete -c millrace -n '__fish_seen_subcommand_from {name}' -l set -x -a '{key}=' -d '{}'\n",
                quoted(help)
            );
        }
        out
    };
    let of_bench = ["suite", "sweep"]
        .map(|name| format!("complete -c millrace -n '__fish_seen_subcommand_from bench' -f -a {name}\n"));
    catalogue.entries().iter().map(line).chain(of_bench).collect()
}

/// A branch of a shell's `case` for each function with keys.
fn cases(catalogue: &Catalogue, found: impl Fn(&[ConfigKey]) -> String) -> String {
    let descriptions =
        catalogue.entries().iter().map(CatalogueEntry::description).filter(|function| !function.keys.is_empty());
    descriptions.map(|function| format!("            {}) {} ;;\n", function.name, found(function.keys))).collect()
}
