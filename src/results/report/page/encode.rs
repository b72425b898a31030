//! Columns as the page carries them: JSON that describes them, and one deflated stream of bytes.
//!
//! A column of `n` rows is `width` planes of `n` bytes from `offset` on: the lowest byte of every
//! row, then the next one. In this order equal bytes lie together, which deflate packs well. The
//! column's `kind` says how to read the numbers: codes into `words` or into `values` (where few
//! differ), f64 bits (`numbers`), or the bytes of a digest from its last to its first (`hex`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde::Serialize;
use serde_json::{Value, json};

use super::columns::{Cells, Column, DIGEST_BYTES};
use sweeper_model::row::schema::Group;

/// Numbers are coded if at most one in so many rows has a different number.
const FEW: usize = 4;
/// Numbers are coded anyway if at most so many differ.
const ALWAYS_FEW: usize = 256;

/// Columns, described and packed.
pub(super) struct Encoded {
    /// The description of each column for the page.
    pub(super) columns: Vec<Value>,
    /// Base64 of the deflated bytes.
    pub(super) packed: String,
}

/// Packs columns.
///
/// # Errors
/// Never in practice: errors of a stream into memory.
pub(super) fn encode(columns: &[Column]) -> io::Result<Encoded> {
    let mut stream = DeflateEncoder::new(Vec::new(), Compression::new(6));
    let mut offset = 0;
    let mut described = Vec::with_capacity(columns.len());
    for column in columns {
        let coded = code(column);
        let bytes = planes(&coded.numbers, coded.width);
        let mut info = json!({
            "name": column.name,
            "group": column.group.name(),
            "about": column.about,
            "kind": coded.kind,
            "width": coded.width,
            "offset": offset,
        });
        if column.is_derived {
            info["derived"] = json!(true);
        }
        if let Some((key, levels)) = coded.levels {
            info[key] = levels;
        }
        described.push(info);
        offset += bytes.len();
        stream.write_all(&bytes)?;
    }
    Ok(Encoded {
        columns: described,
        packed: STANDARD.encode(stream.finish()?),
    })
}

/// A column as whole numbers.
struct Coded {
    kind: &'static str,
    /// The whole number of each row.
    numbers: Vec<u64>,
    /// Bytes of a number.
    width: usize,
    /// The values that codes stand for, and the field that has them in the page.
    levels: Option<(&'static str, Value)>,
}

fn code(column: &Column) -> Coded {
    match &column.cells {
        Cells::Words(words) => code_words(words, &column.natural_order()),
        Cells::Numbers(numbers) => {
            // The page groups rows by axes, which it does by their codes.
            let most = match column.group {
                Group::Axis => usize::MAX,
                _ => ALWAYS_FEW.max(numbers.len() / FEW).min(1 << 16),
            };
            code_numbers(numbers, most)
        }
        Cells::Digests(digests) => Coded {
            kind: "hex",
            numbers: digests
                .iter()
                .map(|digest| {
                    digest
                        .iter()
                        .fold(0, |sum, &byte| sum << 8 | u64::from(byte))
                })
                .collect(),
            width: DIGEST_BYTES,
            levels: None,
        },
    }
}

/// Codes in the natural order of words that have one, then in the order of first appearance.
fn code_words(words: &[Arc<str>], natural: &[&'static str]) -> Coded {
    let present: HashSet<&str> = words.iter().map(AsRef::as_ref).collect();
    let is_present = |word: &&&'static str| present.contains(**word);
    let mut levels: Vec<&str> = natural.iter().filter(is_present).copied().collect();
    let mut codes: HashMap<&str, u64> = levels.iter().copied().zip(0..).collect();
    let numbers = words
        .iter()
        .map(|word| {
            *codes.entry(word).or_insert_with(|| {
                levels.push(word);
                levels.len() as u64 - 1
            })
        })
        .collect();
    Coded {
        kind: "words",
        numbers,
        width: width(levels.len()),
        levels: Some(("words", json!(levels))),
    }
}

/// Codes in the order of the numbers, the missing one last; or the numbers' bits, where more than
/// `most` differ.
fn code_numbers(numbers: &[f64], most: usize) -> Coded {
    let key = |number: &f64| {
        if number.is_nan() {
            f64::NAN.to_bits()
        } else {
            number.to_bits()
        }
    };
    let mut codes: BTreeMap<u64, u64> = BTreeMap::new();
    for number in numbers {
        codes.insert(key(number), 0);
        // JSON has no infinities.
        if codes.len() > most || number.is_infinite() {
            return Coded {
                kind: "numbers",
                numbers: numbers.iter().map(key).collect(),
                width: 8,
                levels: None,
            };
        }
    }
    let mut levels: Vec<f64> = codes.keys().map(|&bits| f64::from_bits(bits)).collect();
    levels.sort_by(|one, other| one.is_nan().cmp(&other.is_nan()).then(one.total_cmp(other)));
    for (place, level) in levels.iter().enumerate() {
        codes.insert(key(level), place as u64);
    }
    let values: Vec<Option<f64>> = levels
        .iter()
        .map(|&level| (!level.is_nan()).then_some(level))
        .collect();
    Coded {
        kind: "values",
        numbers: numbers.iter().map(|number| codes[&key(number)]).collect(),
        width: width(levels.len()),
        levels: Some(("values", json!(values))),
    }
}

/// Bytes that tell so many levels apart.
const fn width(levels: usize) -> usize {
    match levels {
        0..=1 => 0,
        2..=0x100 => 1,
        0x101..=0x1_0000 => 2,
        _ => 4,
    }
}

fn planes(numbers: &[u64], width: usize) -> Vec<u8> {
    (0..width)
        .flat_map(|place| {
            numbers
                .iter()
                .map(move |number| (number >> (8 * place)) as u8)
        })
        .collect()
}

/// JSON that can stand in a script element: no character in it means anything to HTML.
///
/// # Errors
/// If `value` can't be written as JSON.
pub(super) fn json_for_html(value: &impl Serialize) -> serde_json::Result<String> {
    let mut text = String::new();
    for character in serde_json::to_string(value)?.chars() {
        match character {
            // These occur in strings alone, where an escape means the character itself.
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                text.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            other => text.push(other),
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::DeflateDecoder;
    use proptest::prelude::*;

    use super::*;

    fn column(cells: Cells) -> Column {
        of_group(Group::Result, cells)
    }

    fn of_group(group: Group, cells: Cells) -> Column {
        Column {
            name: "x".to_owned(),
            group,
            is_derived: false,
            about: String::new(),
            cells,
        }
    }

    /// The page's text for each row of a column; the inverse of `encode`, written independently.
    fn decode(info: &Value, bytes: &[u8], rows: usize) -> Vec<String> {
        let [width, offset] = ["width", "offset"].map(|key| info[key].as_u64().unwrap() as usize);
        let number = |row: usize| {
            (0..width).fold(0u64, |sum, place| {
                sum | u64::from(bytes[offset + place * rows + row]) << (8 * place)
            })
        };
        let level = |key: &str, row: usize| info[key][number(row) as usize].clone();
        (0..rows)
            .map(|row| match info["kind"].as_str().unwrap() {
                "words" => level("words", row).as_str().unwrap().to_owned(),
                "values" => level("values", row)
                    .as_f64()
                    .unwrap_or(f64::NAN)
                    .to_string(),
                "numbers" => f64::from_bits(number(row)).to_string(),
                "hex" => format!("{:012x}", number(row)),
                other => panic!("{other}"),
            })
            .collect()
    }

    fn round_trip(columns: &[Column], rows: usize) -> Vec<Vec<String>> {
        let encoded = encode(columns).unwrap();
        let packed = STANDARD.decode(&encoded.packed).unwrap();
        let mut bytes = Vec::new();
        DeflateDecoder::new(packed.as_slice())
            .read_to_end(&mut bytes)
            .unwrap();
        encoded
            .columns
            .iter()
            .map(|info| decode(info, &bytes, rows))
            .collect()
    }

    #[test]
    fn digests_keep_their_first_digits() {
        let cells = Cells::Digests(vec![[0x0a, 0xbc, 0xde, 0xf0, 0x12, 0x34], [0; 6]]);
        assert_eq!(
            round_trip(&[column(cells)], 2),
            [["0abcdef01234", "000000000000"]]
        );
    }

    #[test]
    fn axes_have_codes_however_many_values_differ() {
        let numbers: Vec<f64> = (0..70_000).rev().map(f64::from).collect();
        let axis = of_group(Group::Axis, Cells::Numbers(numbers.clone()));
        let other = column(Cells::Numbers(numbers.clone()));
        let kinds: Vec<Value> = encode(&[axis.clone(), other])
            .unwrap()
            .columns
            .iter()
            .map(|info| info["kind"].clone())
            .collect();
        assert_eq!(kinds, ["values", "numbers"]);
        let expected: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        assert_eq!(round_trip(&[axis], 70_000), [expected]);
    }

    #[test]
    fn nothing_in_json_means_anything_to_html() {
        let hostile = "</script><!--<script>&lt;\u{2028}\"'\\";
        let text = json_for_html(&json!({ hostile: [hostile] })).unwrap();
        assert!(!text.contains(['<', '>', '&', '\u{2028}']), "{text}");
        let back: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back, json!({ hostile: [hostile] }));
    }

    proptest! {
        #[test]
        fn columns_survive(
            words in prop::collection::vec("[a-c<>&]{0,2}", 1..400),
            few in prop::collection::vec(prop::sample::select(vec![1.0, -2.5, 1e300, 0.1, f64::NAN]), 400),
            many in prop::collection::vec(any::<f64>(), 400),
        ) {
            let rows = words.len();
            let words: Vec<Arc<str>> = words.into_iter().map(Arc::from).collect();
            let many: Vec<f64> = many[..rows].to_vec();
            let few: Vec<f64> = few[..rows].to_vec();
            let columns = [
                column(Cells::Words(words.clone())),
                column(Cells::Numbers(few.clone())),
                column(Cells::Numbers(many.clone())),
            ];
            let text = |numbers: &[f64]| numbers.iter().map(ToString::to_string).collect::<Vec<_>>();
            let found = round_trip(&columns, rows);
            prop_assert_eq!(&found[0], &words.iter().map(|word| word.to_string()).collect::<Vec<_>>());
            prop_assert_eq!(&found[1], &text(&few));
            prop_assert_eq!(&found[2], &text(&many));
        }
    }
}
