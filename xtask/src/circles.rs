//! Checks import cycles between the files of a crate: at most three files may be in one, so that a reader can begin with any other file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::check::root;

/// The crates that are checked.
const CRATES: [&str; 1] = ["engine"];
/// The most files in a cycle.
const FILES_MAX: usize = 3;

/// A module path as segments.
type Module = Vec<String>;

/// Checks each crate of the list.
pub(crate) fn check() -> Result<()> {
    for name in CRATES {
        let folder = root().join("crates").join(name).join("src");
        let mut sources = BTreeMap::new();
        read(&folder, &mut Vec::new(), &mut sources)?;
        for circle in circles(&imports(&sources)) {
            let files: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
            ensure!(
                circle.len() <= FILES_MAX,
                "{name}: {} files import each other in a cycle, at most {FILES_MAX} may: {}; move the shared code to a file below them",
                files.len(),
                files.join(", ")
            );
        }
    }
    Ok(())
}

/// Reads the sources below a folder, except tests.
fn read(folder: &Path, module: &mut Module, sources: &mut BTreeMap<Module, String>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("{} can't be read", folder.display()))? {
        let path = entry?.path();
        let Some(stem) = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()) else { continue };
        if path.is_dir() {
            module.push(stem);
            read(&path, module, sources)?;
            module.pop();
        } else if path.extension().is_some_and(|extension| extension == "rs") && stem != "tests" {
            let own = if ["mod", "lib", "main"].contains(&stem.as_str()) { Vec::new() } else { vec![stem] };
            sources.insert([module.as_slice(), &own].concat(), fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

/// The imports of each module. Only imports at the left margin count, as others belong to tests. The crate's root is left out.
fn imports(sources: &BTreeMap<Module, String>) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut all = BTreeMap::new();
    for (module, text) in sources.iter().filter(|(module, _)| !module.is_empty()) {
        let mut imported = BTreeSet::new();
        for import in text.split('\n').enumerate().filter_map(|(at, line)| import_at(text, at, line)) {
            for path in expand(&import) {
                imported.extend(resolve(&path, module, sources).filter(|other| other != module && !other.is_empty()));
            }
        }
        all.insert(module.clone(), imported);
    }
    all
}

/// The path of the import that begins at this line, up to its semicolon.
fn import_at(text: &str, at: usize, line: &str) -> Option<String> {
    let rest = line.strip_prefix("pub use ").or_else(|| line.strip_prefix("pub(crate) use "));
    let begin = line.len() - rest.or_else(|| line.strip_prefix("use "))?.len();
    let before: usize = text.split('\n').take(at).map(|line| line.len() + 1).sum();
    let whole = &text[before + begin..];
    Some(whole[..whole.find(';')?].split_whitespace().collect::<Vec<_>>().join(" "))
}

/// `a::{b, c::{d, e}}` as `a::b`, `a::c::d` and `a::c::e`.
fn expand(tree: &str) -> Vec<String> {
    let Some((head, rest)) = tree.split_once('{') else { return vec![tree.trim().to_owned()] };
    let body = rest.trim_end().strip_suffix('}').unwrap_or(rest);
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for letter in body.chars() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if letter == ',' && depth == 0 {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(letter);
        }
    }
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    parts.flat_map(|part| expand(&format!("{}{part}", head.trim_start()))).collect()
}

/// The module of a path, as far as there are files.
fn resolve(path: &str, from: &Module, sources: &BTreeMap<Module, String>) -> Option<Module> {
    let mut segments = path.split("::").map(str::trim).peekable();
    let mut module = match *segments.peek()? {
        "crate" => Vec::new(),
        "self" => from.clone(),
        "super" => {
            let mut above = from.clone();
            while segments.next_if_eq(&"super").is_some() {
                above.pop();
            }
            above
        }
        // A module below this one; otherwise it is another crate.
        first if sources.contains_key(&[from.as_slice(), &[first.to_owned()]].concat()) => from.clone(),
        _ => return None,
    };
    while segments.next_if(|segment| ["crate", "self"].contains(segment)).is_some() {}
    for segment in segments {
        module.push(segment.to_owned());
        if !sources.contains_key(&module) {
            module.pop();
            break;
        }
    }
    Some(module)
}

/// The strongly connected sets of modules.
fn circles(imports: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<Vec<&Module>> {
    let reach = |from: &Module| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(module) = open.pop() {
            let next = imports.get(&module).into_iter().flatten();
            open.extend(next.filter(|next| reached.insert((*next).clone())).cloned());
        }
        reached
    };
    let reached: BTreeMap<&Module, BTreeSet<Module>> = imports.keys().map(|module| (module, reach(module))).collect();
    let leads = |from: &Module, to: &Module| reached.get(from).is_some_and(|reached| reached.contains(to));
    let mut done = BTreeSet::new();
    let mut all = Vec::new();
    for module in imports.keys().filter(|module| leads(module, module)) {
        if done.contains(module) {
            continue;
        }
        let circle: Vec<&Module> =
            imports.keys().filter(|other| leads(module, other) && leads(other, module)).collect();
        done.extend(circle.iter().copied());
        all.push(circle);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(path: &str) -> Module {
        path.split("::").map(str::to_owned).collect()
    }

    fn found(sources: &[(&str, &str)]) -> Vec<Vec<String>> {
        let mut all: BTreeMap<Module, String> =
            sources.iter().map(|(path, text)| (module(path), (*text).to_owned())).collect();
        all.insert(Vec::new(), "pub use a::A;".to_owned());
        let imports = imports(&all);
        circles(&imports).iter().map(|circle| circle.iter().map(|module| module.join("::")).collect()).collect()
    }

    #[test]
    fn imports_are_read_in_all_their_forms() {
        assert_eq!(expand("crate::{a, b::{c, d::E}, f}"), ["crate::a", "crate::b::c", "crate::b::d::E", "crate::f"]);
        assert_eq!(found(&[("a", "use crate::b::B;"), ("b", "pub(crate) use crate::{\n    a::A,\n};")]), [["a", "b"]]);
        assert_eq!(found(&[("a", "use crate::b::B;"), ("b", "mod tests {\n    use crate::a::A;\n}")]).len(), 0);
        assert_eq!(found(&[("r::a", "use super::b::B;"), ("r::b", "use super::super::r::a;"), ("r", "")]).len(), 1);
        assert_eq!(found(&[("r", "pub use self::a::A;"), ("r::a", "use super::R;")]), [["r", "r::a"]]);
        assert_eq!(found(&[("r", "use a::A;"), ("r::a", "use std::a::B;")]).len(), 0);
    }

    #[test]
    fn this_house_has_no_large_ones() {
        check().expect("no circle is too large");
    }

    #[test]
    fn circles_are_whole() {
        let sources =
            [("a", "use crate::b;"), ("b", "use crate::c::C;"), ("c", "use crate::{a, d};"), ("d", "use crate::e;")];
        assert_eq!(found(&sources), [["a", "b", "c"]]);
        assert_eq!(found(&[("a", "use crate::b;"), ("b", ""), ("c", "use crate::a;")]).len(), 0);
    }
}
