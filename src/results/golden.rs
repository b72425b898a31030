//! Golden files of unit tests.

use std::path::Path;

/// Compares a text with the file of that name in `tests/golden`, or writes it there if
/// `SWEEPER_BLESS` is set.
pub(crate) fn assert_golden(name: &str, text: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let path = folder.join(name);
    if std::env::var_os("SWEEPER_BLESS").is_some() {
        std::fs::write(&path, text).expect("the folder of golden files can be written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{}", path.display());
}
