//! "Did you mean": the known name that is closest to a wrong one.

/// Words of other tools, with ours.
const SYNONYMS: [(&str, &str); 3] = [("gpu", "cuda"), ("float32", "f32"), ("float64", "f64")];

/// The known name that `wrong` most probably stands for.
pub(crate) fn closest<'a>(
    wrong: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let synonym = SYNONYMS.iter().find(|(theirs, _)| *theirs == wrong);
    let known: Vec<&str> = known.into_iter().collect();
    if let Some(ours) = known
        .iter()
        .find(|name| synonym.is_some_and(|(_, ours)| ours == *name))
    {
        return Some(ours);
    }
    let scored = known.into_iter().filter(|each| similar(wrong, each));
    scored.min_by_key(|each| distance(wrong, each))
}

/// A question with the closest name; empty where nothing is close.
pub(crate) fn did_you_mean<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    closest(wrong, known).map_or_else(String::new, |name| format!("did you mean `{name}`?"))
}

/// A line of help with the closest name and all other names.
pub(crate) fn among(wrong: &str, title: &str, known: &[&str]) -> String {
    let question = did_you_mean(wrong, known.iter().copied());
    let all = format!("{title}: {}", known.join(" "));
    match (question.is_empty(), known.is_empty()) {
        (_, true) => question,
        (true, false) => all,
        (false, false) => format!("{question}   {all}"),
    }
}

/// True if one word is probably a misspelling of the other.
pub(crate) fn similar(wrong: &str, known: &str) -> bool {
    let longest = wrong.chars().count().max(known.chars().count());
    let allowed = if longest <= 2 {
        0
    } else {
        (longest / 3).max(1)
    };
    distance(wrong, known) <= allowed || (wrong.len() >= 4 && known.starts_with(wrong))
}

/// How a number or a list was probably meant that was written as text: with its unit, which the
/// key's name has, or with other signs than commas between.
pub(crate) fn number_in(text: &str) -> Option<String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, rest) = text.split_at(digits.filter(|&at| at > 0)?);
    let parts: Vec<&str> = text
        .split([';', ' '])
        .filter(|part| !part.is_empty())
        .collect();
    match rest.trim_start() {
        _ if parts.len() > 1 && parts.iter().all(|part| part.parse::<f64>().is_ok()) => Some(
            format!("numbers are separated by commas: {}", parts.join(",")),
        ),
        unit if unit.chars().all(char::is_alphabetic) && !unit.is_empty() => Some(format!(
            "a number without a unit, which the key's name says: {number}"
        )),
        _ => None,
    }
}

fn distance(wrong: &str, known: &str) -> usize {
    strsim::damerau_levenshtein(&wrong.to_lowercase(), &known.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_numbers_as_other_tools_have_them_are_explained() {
        assert_eq!(closest("gpu", ["auto", "cpu", "cuda"]), Some("cuda"));
        assert_eq!(closest("gpu", ["auto", "cpu"]), Some("cpu"));
        let hint = |text| number_in(text).unwrap_or_default();
        assert!(hint("4GB").ends_with(": 4") && hint("5m").ends_with(": 5"));
        assert!(hint("256;512").ends_with(": 256,512"));
        assert!(hint("fast").is_empty() && hint("1.5").is_empty() && hint("3-4").is_empty());
    }
}
