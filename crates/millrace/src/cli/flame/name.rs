//! Readable function names from the compiler's names.

/// Path of a function without generics, traits and numbers of closures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name(Vec<String>);

impl Name {
    /// Converts `<functions::nat::Nat as nf::function::NetworkFunction>::packet::<M>` to `functions::nat::Nat::packet`.
    pub(super) fn of(function: &str) -> Self {
        let mut words = Vec::new();
        for piece in split(function, "::") {
            match piece.strip_prefix('<').and_then(|piece| piece.strip_suffix('>')) {
                Some(inner) if words.is_empty() => words = of_type(inner),
                // `functions::nat::translate::<impl functions::nat::Nat>::outward`: the crate is that of the module.
                Some(inner) => {
                    if let Some(implemented) = inner.strip_prefix("impl ") {
                        let target = split(implemented, " for ").pop().unwrap_or(implemented);
                        words.extend(of_type(target).pop());
                    }
                }
                None if piece.starts_with('{') => {}
                None => words.push(without_generics(piece).to_owned()),
            }
        }
        Self(words)
    }

    /// The crate, where the name has a path: `engine` of `millrace_engine::run`.
    pub(super) fn home(&self) -> Option<&str> {
        self.0.first().filter(|_| self.0.len() > 1).map(|home| home.strip_prefix("millrace_").unwrap_or(home))
    }

    /// The function; none for a closure without a path.
    pub(super) fn last(&self) -> Option<&str> {
        self.0.last().map(String::as_str)
    }

    /// The type that it belongs to, if the name has it.
    pub(super) fn owner(&self) -> Option<&str> {
        let owner = self.0.len().checked_sub(2).and_then(|at| self.0.get(at))?;
        owner.starts_with(|first: char| first.is_ascii_uppercase()).then_some(owner)
    }
}

/// The path of a type, or of the trait where the type has none: `T as core::convert::Into<U>`.
fn of_type(text: &str) -> Vec<String> {
    let mut parts = split(text, " as ").into_iter();
    let (own, of_trait) = (parts.next().unwrap_or(text), parts.next());
    let own = own.trim_start_matches(['&', '*', '(', '[']);
    let own = ["mut ", "const ", "dyn "].iter().fold(own, |own, word| own.strip_prefix(word).unwrap_or(own));
    match of_trait {
        Some(of_trait) if !own.contains("::") => Name::of(of_trait).0,
        Some(_) | None => Name::of(own).0,
    }
}

fn without_generics(piece: &str) -> &str {
    piece.split_once('<').map_or(piece, |(name, _)| name)
}

/// Splits at a mark outside of brackets.
fn split<'a>(text: &'a str, mark: &str) -> Vec<&'a str> {
    let (mut pieces, mut start, mut depth, mut before) = (Vec::new(), 0, 0_i32, ' ');
    for (at, letter) in text.char_indices() {
        match letter {
            _ if depth == 0 && at >= start && text[at..].starts_with(mark) => {
                pieces.push(&text[start..at]);
                start = at + mark.len();
            }
            '<' | '(' | '[' | '{' => depth += 1,
            // The arrow of `fn() -> T` closes nothing.
            '>' if before == '-' => {}
            '>' | ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        before = letter;
    }
    pieces.push(&text[start..]);
    pieces.into_iter().filter(|piece| !piece.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_what_they_were_made_for() {
        for (function, home, short) in [
            ("engine::run::cores::serve", "engine", "serve"),
            (
                "<millrace_functions::nat::Nat as millrace_nf::function::NetworkFunction>::packet",
                "functions",
                "Nat::packet",
            ),
            ("millrace::main", "millrace", "main"),
            ("engine::run::cores::serve::<functions::nat::Nat>", "engine", "serve"),
            ("engine::worker::Worker<N,P>::flush", "engine", "Worker::flush"),
            (
                "<engine::worker::Worker<functions::nat::Nat, engine::transacted::Transacted<functions::nat::Nat>>>::flush",
                "engine",
                "Worker::flush",
            ),
            ("<functions::nat::Nat as nf::function::NetworkFunction>::packet", "functions", "Nat::packet"),
            (
                "<functions::nat::Nat as nf::function::NetworkFunction>::packet::<memory::transactional::Transactional>",
                "functions",
                "Nat::packet",
            ),
            ("functions::nat::translate::<impl functions::nat::Nat>::outward", "functions", "Nat::outward"),
            ("<functions::nat::Nat>::outward::{closure#0}", "functions", "Nat::outward"),
            ("engine::run::cores::run_cores::{{closure}}::{{closure}}", "engine", "run_cores"),
            (
                "memory::transactional::map::<impl memory::Map<K,V> for memory::Shared<K,V>>::get",
                "memory",
                "Shared::get",
            ),
            ("<T as core::convert::Into<U>>::into", "core", "Into::into"),
            ("<&mut F as core::ops::function::FnMut<A>>::call_mut", "core", "FnMut::call_mut"),
            ("<[T] as core::slice::SliceIndex<fn(usize) -> T>>::get", "core", "SliceIndex::get"),
            ("core::ptr::drop_in_place<alloc::vec::Vec<u8>>", "core", "drop_in_place"),
            ("__memmove_avx_unaligned_erms", "", "__memmove_avx_unaligned_erms"),
            ("get<u32, functions::nat::Key>", "", "get"),
            ("{closure#0}", "", ""),
            ("", "", ""),
        ] {
            let name = Name::of(function);
            let reported = name.owner().into_iter().chain(name.last()).collect::<Vec<_>>().join("::");
            assert_eq!((name.home().unwrap_or_default(), reported.as_str()), (home, short), "{function}");
        }
    }

    #[test]
    fn no_name_is_too_odd() {
        for function in ["<", ">", "::", "<<>", "a::", "->", "{", "<impl ", "é::<ü as ö>::ß", "a<b::c", "<a as >::b"]
        {
            let _ = Name::of(function).owner();
        }
    }
}
