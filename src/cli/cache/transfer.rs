//! `sweeper cache export` and `import`: all entries as one file.

use std::path::Path;

use sweeper_cache::{Cache, CacheError};

use super::verify::show_bad;
use crate::cli::exit::Exit;
use crate::cli::screen::Screen;
use sweeper_model::quantity;

pub(super) fn export(cache: &Cache, file: &Path, screen: &Screen) -> Result<Exit, CacheError> {
    let exported = cache.export(file)?;
    if screen.json {
        screen.json(&exported);
        return Ok(Exit::Fine);
    }
    screen.line(&format!(
        "{} entries in {}, {}; for sweeps elsewhere: --cache-upstream {}",
        exported.entries,
        file.display(),
        quantity::bytes(exported.bytes),
        file.display()
    ));
    if !exported.bad.is_empty() {
        screen.line(&format!("{} bad, left out", exported.bad.len()));
        show_bad(&exported.bad, screen);
    }
    Ok(Exit::Fine)
}

pub(super) fn import(cache: &Cache, from: &Path, screen: &Screen) -> Result<Exit, CacheError> {
    let imported = cache.import(from)?;
    let is_whole = imported.refused == 0 && imported.bad.is_empty();
    if screen.json {
        screen.json(&imported);
    } else {
        screen.line(&format!(
            "{} entries copied, {} were here before, {} found no room, {} bad",
            imported.copied,
            imported.present,
            imported.refused,
            imported.bad.len()
        ));
        show_bad(&imported.bad, screen);
        if let Some(warning) = &imported.warning {
            screen.warning(&warning.to_string());
        }
    }
    Ok(if is_whole { Exit::Fine } else { Exit::Files })
}
