//! `sweeper cache`: look into the kernel cache and look after it.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sweeper_cache::{Cache, CacheConfig, CacheError, EntryInfo};

use super::exit::Exit;
use super::place;
use super::screen::Screen;
use crate::compile::kernels::resources_in_words;
use crate::quantity;

/// What is done with the cache.
#[derive(Subcommand)]
pub enum CacheVerb {
    /// How full it is and what happened in it
    Stats(Place),
    /// All entries, last used first
    Ls(Place),
    /// One entry
    Show {
        /// First digits of the key
        key: String,
        /// Where the cache is
        #[command(flatten)]
        place: Place,
    },
    /// Read and check every entry
    Verify {
        /// Set bad entries aside and count again
        #[arg(long)]
        repair: bool,
        /// Where the cache is
        #[command(flatten)]
        place: Place,
    },
    /// Evict until 90 % of the bound
    Gc {
        /// Only say what would go
        #[arg(long)]
        dry_run: bool,
        /// Where the cache is
        #[command(flatten)]
        place: Place,
    },
    /// Delete every entry
    Clear(Place),
    /// Where it is
    Path(Place),
}

/// Where the cache is.
#[derive(Args)]
pub struct Place {
    /// The cache's folder
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// Its bound in GB
    #[arg(long, value_name = "GB", default_value_t = 10.0)]
    cache_size_gb: f64,
}

impl Place {
    fn dir(&self) -> (PathBuf, &'static str) {
        match &self.cache_dir {
            Some(dir) => (dir.clone(), "--cache-dir"),
            None => place::cache_dir(None),
        }
    }

    fn open(&self) -> Result<Cache, CacheError> {
        let capacity = self.cache_size_gb.max(0.0) * crate::manifest::settings::GB;
        Cache::open(CacheConfig::new(self.dir().0, capacity as u64))
    }
}

/// Does what a verb says.
pub fn cache(verb: &CacheVerb, screen: &Screen) -> Exit {
    let done = match verb {
        CacheVerb::Path(place) => {
            let (dir, why) = place.dir();
            screen.line(&dir.display().to_string());
            if screen.verbose {
                screen.note(why);
            }
            Ok(Exit::Fine)
        }
        CacheVerb::Stats(place) => place.open().and_then(|cache| stats(&cache, screen)),
        CacheVerb::Ls(place) => place.open().and_then(|cache| list(&cache, screen)),
        CacheVerb::Show { key, place } => place.open().map(|cache| show(&cache, key, screen)),
        CacheVerb::Verify { repair, place } => place
            .open()
            .and_then(|cache| verify(&cache, *repair, screen)),
        CacheVerb::Gc { dry_run, place } => place.open().and_then(|cache| {
            screen.json(&cache.gc(*dry_run)?);
            Ok(Exit::Fine)
        }),
        CacheVerb::Clear(place) => place.open().and_then(|cache| {
            let cleared = cache.clear()?;
            screen.line(&format!(
                "{} entries deleted, {}",
                cleared.entries.entries,
                quantity::bytes(cleared.entries.bytes)
            ));
            Ok(Exit::Fine)
        }),
    };
    done.unwrap_or_else(|error| {
        screen.error(&error.to_string());
        Exit::Files
    })
}

fn stats(cache: &Cache, screen: &Screen) -> Result<Exit, CacheError> {
    let stats = cache.stats()?;
    if screen.json {
        screen.json(&stats);
        return Ok(Exit::Fine);
    }
    let total = &stats.total;
    screen.line(&format!("folder       {}", stats.dir.display()));
    screen.line(&format!("entries      {}", stats.entries));
    screen.line(&format!(
        "size         {} of {}",
        quantity::bytes(stats.disk_bytes),
        quantity::bytes(stats.capacity_bytes)
    ));
    screen.line(&format!("hits         {}", total.hits));
    screen.line(&format!("misses       {}", total.misses));
    screen.line(&format!("stored       {}", total.stores));
    screen.line(&format!("evicted      {}", total.evictions));
    screen.line(&format!("quarantined  {}", total.quarantined));
    Ok(Exit::Fine)
}

fn line(entry: &EntryInfo) -> String {
    let name = entry.name.to_string();
    let size = quantity::bytes(entry.disk_bytes);
    match &entry.summary {
        Some(summary) => format!(
            "{name:.12}  {size:>10}  {:?}  {}  {}",
            summary.kind,
            summary.metadata.sources.join(" "),
            summary
                .metadata
                .options
                .iter()
                .filter(|option| option.starts_with("-D"))
                .cloned()
                .chain(resources_in_words(&summary.metadata.resources))
                .collect::<Vec<_>>()
                .join(" ")
        ),
        None => format!("{name:.12}  {size:>10}  not an entry"),
    }
}

fn list(cache: &Cache, screen: &Screen) -> Result<Exit, CacheError> {
    let entries: Vec<EntryInfo> = cache.ls()?.collect();
    if screen.json {
        screen.json(&entries);
    } else {
        entries.iter().for_each(|entry| screen.line(&line(entry)));
    }
    Ok(Exit::Fine)
}

fn show(cache: &Cache, key: &str, screen: &Screen) -> Exit {
    match cache.find(key) {
        Ok(entry) => {
            screen.json(&entry);
            Exit::Fine
        }
        Err(error) => {
            screen.error(&error.to_string());
            Exit::Usage
        }
    }
}

fn verify(cache: &Cache, repair: bool, screen: &Screen) -> Result<Exit, CacheError> {
    let report = cache.verify(repair)?;
    if screen.json {
        screen.json(&report);
    } else {
        screen.line(&format!(
            "{} entries checked, {} bad, {} set aside",
            report.checked,
            report.bad.len(),
            report.quarantined
        ));
        for bad in &report.bad {
            screen.line(&format!("  {bad:?}"));
        }
    }
    let is_sound = report.bad.is_empty() || report.quarantined as usize == report.bad.len();
    Ok(if is_sound { Exit::Fine } else { Exit::Files })
}
