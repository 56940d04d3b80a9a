//! "Did you mean".

/// The known word that `word` most likely misspells.
///
/// # Example
/// ```
/// assert_eq!(kendall_keys::closest("workres", ["threads", "workers"]), Some("workers"));
/// assert_eq!(kendall_keys::closest("colour", ["threads", "workers"]), None);
/// ```
pub fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|name| (strsim::levenshtein(word, name), name))
        .filter(|(edits, name)| *edits <= 1 + name.chars().count() / 4)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, name)| name)
}

/// What an error about `word` ends with: the known word that it most likely misspells, if there is one.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    closest(word, known).map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}
