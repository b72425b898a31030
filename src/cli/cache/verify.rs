//! `sweeper cache verify`: bad entries, strangers, and whether the counted size is right.

use sweeper_cache::{BadEntry, Cache, CacheError, VerifyReport};

use crate::cli::exit::Exit;
use crate::cli::screen::Screen;
use sweeper_model::quantity;

pub(super) fn verify(cache: &Cache, repair: bool, screen: &Screen) -> Result<Exit, CacheError> {
    let report = cache.verify(repair)?;
    if screen.json {
        screen.json(&report);
    } else {
        show(&report, repair, screen);
    }
    let is_sound = report.bad.is_empty() || report.quarantined as usize == report.bad.len();
    Ok(if is_sound { Exit::Fine } else { Exit::Files })
}

fn show(report: &VerifyReport, repair: bool, screen: &Screen) {
    let set_aside = match repair {
        true => format!(", {} set aside", report.quarantined),
        false => String::new(),
    };
    screen.line(&format!(
        "{} entries checked, {} bad{set_aside}",
        report.checked,
        report.bad.len(),
    ));
    show_bad(&report.bad, screen);
    for path in &report.foreign {
        screen.line(&format!("  {} is not of this cache", path.display()));
    }
    if let Some(line) = account_in_words(report) {
        screen.line(&line);
    }
    if !repair && !report.bad.is_empty() {
        screen.line(
            "bad entries are not used, and are compiled again when they are needed; \
             `sweeper cache verify --repair` sets them aside now",
        );
    }
}

/// Bad entries, one a line.
pub(super) fn show_bad(bad: &[BadEntry], screen: &Screen) {
    for bad in bad {
        screen.line(&format!("  {}  {}", bad.name, bad.reason));
    }
}

/// The fault in the size that the cache counts, in a line, if there is one.
fn account_in_words(report: &VerifyReport) -> Option<String> {
    let (held, actual) = (report.accounted?.bytes, report.actual.bytes);
    if report.account_rebuilt || held == actual {
        return None;
    }
    Some(format!(
        "the cache counts {} and has {}: processes that were killed left that; the next \
         collection counts again",
        quantity::bytes(held),
        quantity::bytes(actual)
    ))
}
