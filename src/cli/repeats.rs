//! Listings in which parts that repeat, such as the layers of a model, are shown once: by their
//! structure, not by names.

use std::collections::BTreeMap;

/// An entry of a listing: a kernel, a buffer.
pub(super) struct Block {
    /// What makes entries equal: all but names.
    pub(super) key: String,
    /// The entry as it is shown.
    pub(super) lines: Vec<String>,
}

/// The longest part that is looked for, in entries.
const MOST_ENTRIES: usize = 2048;

/// A part is shown once where this leaves out at least so many entries.
const LEAST_SAVED: usize = 4;

/// The lines of some blocks, `noun` each: of a part that repeats at once, the first time, and how
/// often it comes again.
pub(super) fn folded(blocks: &[Block], noun: &str) -> Vec<String> {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let keys: Vec<usize> = blocks
        .iter()
        .map(|block| {
            let next = numbers.len();
            *numbers.entry(&block.key).or_insert(next)
        })
        .collect();
    let mut lines = Vec::new();
    let mut at = 0;
    while at < blocks.len() {
        let (part, more) = repeated(&keys[at..]);
        let shown = &blocks[at..at + part];
        lines.extend(shown.iter().flat_map(|block| block.lines.clone()));
        if more > 0 {
            let times = if more == 1 {
                "once"
            } else {
                &format!("{more} times")
            };
            lines.push(match part {
                1 => format!("... the same {times} more"),
                _ => format!("... the last {part} {noun} {times} more"),
            });
        }
        at += part * (1 + more);
    }
    lines
}

/// The part that begins `keys` and comes again at once, by which most is left out: its length, and
/// how often it comes again.
fn repeated(keys: &[usize]) -> (usize, usize) {
    let mut best = (1, 0);
    for part in 1..=(keys.len() / 2).min(MOST_ENTRIES) {
        let again = keys.iter().zip(&keys[part..]);
        let more = again.take_while(|(one, other)| one == other).count() / part;
        if more * part >= LEAST_SAVED && more * part > best.0 * best.1 {
            best = (part, more);
        }
    }
    best
}

/// The launches of a pass: a line and the lines below it that are indented further. Nodes and
/// tensors are equal by their operations and shapes.
pub(super) fn launches(text: &str) -> Vec<Block> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let first = text.lines().map(indent).min().unwrap_or(0);
    let mut blocks: Vec<Block> = Vec::new();
    for line in text.lines() {
        let key = without_names(line);
        match blocks.last_mut() {
            Some(block) if indent(line) > first => {
                block.key += &key;
                block.lines.push(line.to_owned());
            }
            _ => blocks.push(Block {
                key,
                lines: vec![line.to_owned()],
            }),
        }
    }
    blocks
}

/// A line whose tensors have shapes alone, and whose nodes no numbers.
fn without_names(line: &str) -> String {
    let words = line.split(' ').map(|word| match word.find('[') {
        Some(at) => &word[at..],
        None if word.starts_with('%') => "%",
        None => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        folded(&launches(text), "launches")
    }

    #[test]
    fn a_layer_is_shown_once() {
        let layer = |at: usize| {
            format!(
                "kernel: %{at} mul\n  reads layers.{at}.w[4] writes %{at}[4, 4], 8 bytes\n\
                 call: %{} matmul\n  reads %{at}[4, 4], 9 bytes\n",
                at + 1
            )
        };
        let layers: String = [1, 3, 5].map(layer).concat();
        let found = shown(&format!("gather\n{layers}head\n"));
        let expected = format!(
            "gather\n{}... the last 2 launches 2 times more\nhead",
            layer(1)
        );
        assert_eq!(found.join("\n"), expected);
        // Another shape is another layer.
        let other = layers.replace("%3[4, 4]", "%3[4, 5]");
        assert_eq!(shown(&other).len(), 12);
    }

    #[test]
    fn a_few_equal_launches_are_shown() {
        assert_eq!(shown("a\na\na\nb\n").join(" "), "a a a b");
        let found = shown("a\na\na\na\na\nb\n");
        assert_eq!(found.join(" "), "a ... the same 4 times more b");
        assert!(shown("").is_empty());
    }
}
