//! "Did you mean": the known name that is closest to a wrong one.

/// The known name that `wrong` most probably stands for.
pub(super) fn closest<'a>(
    wrong: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let scored = known.into_iter().filter(|each| similar(wrong, each));
    scored.min_by_key(|each| distance(wrong, each))
}

/// A question with the closest name; empty where nothing is close.
pub(super) fn did_you_mean<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    closest(wrong, known).map_or_else(String::new, |name| format!("did you mean `{name}`?"))
}

/// A line of help with the closest name and all other names.
pub(super) fn among(wrong: &str, title: &str, known: &[&str]) -> String {
    let question = did_you_mean(wrong, known.iter().copied());
    let all = format!("{title}: {}", known.join(" "));
    match (question.is_empty(), known.is_empty()) {
        (_, true) => question,
        (true, false) => all,
        (false, false) => format!("{question}   {all}"),
    }
}

/// True if one word is probably a misspelling of the other.
pub(super) fn similar(wrong: &str, known: &str) -> bool {
    let longest = wrong.chars().count().max(known.chars().count());
    let allowed = if longest <= 2 {
        0
    } else {
        (longest / 3).max(1)
    };
    distance(wrong, known) <= allowed || (wrong.len() >= 4 && known.starts_with(wrong))
}

fn distance(wrong: &str, known: &str) -> usize {
    strsim::damerau_levenshtein(&wrong.to_lowercase(), &known.to_lowercase())
}
