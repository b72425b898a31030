//! `sweeper cache`: look into the kernel cache and look after it.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;
use sweeper_cache::{Cache, CacheConfig, CacheError, Collected, EntryInfo, Kind};

use super::exit::Exit;
use super::place;
use super::screen::Screen;
use sweeper_engine::compile::bound;
use sweeper_engine::compile::kernels::resources_in_words;
use sweeper_manifest::settings::{DEFAULT_CACHE_GB, GB};
use sweeper_model::quantity;

mod explain;
mod transfer;
mod verify;

use explain::ExplainArgs;

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
    /// Write all entries into one file, which other caches can have as `cache.upstream` or import
    Export {
        /// The file
        file: PathBuf,
        /// Where the cache is
        #[command(flatten)]
        place: Place,
    },
    /// Copy all entries of an exported file, or of another cache's folder
    Import {
        /// The file or folder
        from: PathBuf,
        /// Where the cache is
        #[command(flatten)]
        place: Place,
    },
    /// Why kernels are not in the cache: the field of the key in which the nearest entry differs
    Explain(ExplainArgs),
    /// Where it is
    Path(Place),
}

/// Where the cache is.
#[derive(Args)]
pub struct Place {
    /// The cache's folder
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// Its bound in GB [default: that of the sweep that used it last, or 10]
    #[arg(long, value_name = "GB")]
    cache_size_gb: Option<f64>,
}

impl Place {
    /// The folder, and who names it.
    fn dir(&self) -> (PathBuf, String) {
        match &self.cache_dir {
            Some(dir) => (dir.clone(), "--cache-dir".to_owned()),
            None => place::cache_dir(None),
        }
    }

    /// The bound in bytes, and who says so.
    fn bound(&self) -> (u64, &'static str) {
        if let Some(size) = self.cache_size_gb {
            return ((size.max(0.0) * GB) as u64, "--cache-size-gb");
        }
        match bound::remembered(&self.dir().0) {
            Some(bytes) => (bytes, "the sweep that used it last"),
            None => ((DEFAULT_CACHE_GB * GB) as u64, "default"),
        }
    }

    fn config(&self) -> CacheConfig {
        CacheConfig::new(self.dir().0, self.bound().0)
    }

    fn open(&self) -> Result<Cache, CacheError> {
        Cache::open(self.config())
    }

    /// Opens it and makes nothing.
    fn look(&self) -> Result<Cache, CacheError> {
        Cache::open_to_read(self.config())
    }
}

/// Runs a verb.
pub fn cache(verb: &CacheVerb, screen: &Screen) -> Exit {
    let done = match verb {
        CacheVerb::Path(place) => {
            let (dir, why) = place.dir();
            if screen.json {
                screen.json(&json!({ "dir": dir, "chosen_by": why }));
                return Exit::Fine;
            }
            screen.line(&dir.display().to_string());
            if screen.verbose {
                screen.note(&why);
            }
            Ok(Exit::Fine)
        }
        CacheVerb::Stats(place) => place
            .open()
            .and_then(|cache| stats(&cache, place.bound().1, screen)),
        CacheVerb::Ls(place) => place.look().and_then(|cache| list(&cache, screen)),
        CacheVerb::Show { key, place } => place.look().map(|cache| show(&cache, key, screen)),
        CacheVerb::Export { file, place } => place
            .look()
            .and_then(|cache| transfer::export(&cache, file, screen)),
        CacheVerb::Import { from, place } => place
            .open()
            .and_then(|cache| transfer::import(&cache, from, screen)),
        CacheVerb::Explain(args) => return explain::explain(args, screen),
        CacheVerb::Verify { repair, place } => place
            .open()
            .and_then(|cache| verify::verify(&cache, *repair, screen)),
        CacheVerb::Gc { dry_run, place } => place.open().and_then(|cache| {
            let collected = cache.gc(*dry_run)?;
            if screen.json {
                screen.json(&collected);
            } else {
                screen.line(&collected_text(&collected));
            }
            Ok(Exit::Fine)
        }),
        CacheVerb::Clear(place) => place.open().and_then(|cache| {
            let cleared = cache.clear()?;
            if screen.json {
                screen.json(&cleared);
                return Ok(Exit::Fine);
            }
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

/// The result of a collection, in a line.
fn collected_text(collected: &Collected) -> String {
    format!(
        "{} entries {}, {}; {} left, {}, where collecting ends at {}",
        collected.evicted.entries,
        match collected.dry_run {
            true => "would be deleted",
            false => "deleted",
        },
        quantity::bytes(collected.evicted.bytes),
        collected.left.entries,
        quantity::bytes(collected.left.bytes),
        quantity::bytes(collected.goal_bytes)
    )
}

fn stats(cache: &Cache, bound_from: &str, screen: &Screen) -> Result<Exit, CacheError> {
    let stats = cache.stats()?;
    if screen.json {
        screen.json(&stats);
        return Ok(Exit::Fine);
    }
    let total = &stats.total;
    screen.line(&format!("folder       {}", stats.dir.display()));
    screen.line(&format!("entries      {}", stats.entries));
    screen.line(&format!(
        "size         {} of {} (bound: {bound_from})",
        quantity::bytes(stats.disk_bytes),
        quantity::bytes(stats.capacity_bytes)
    ));
    let fetched = match total.fetched {
        0 => String::new(),
        count => format!(", {count} of them from an upstream"),
    };
    screen.line(&format!("hits         {}{fetched}", total.hits));
    screen.line(&format!("misses       {}", total.misses));
    screen.line(&format!("stored       {}", total.stores));
    screen.line(&format!("evicted      {}", total.evictions));
    screen.line(&format!("quarantined  {}", total.quarantined));
    Ok(Exit::Fine)
}

/// The kind of an artifact, in words.
const fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Cubin => "cubin",
        Kind::Ptx => "ptx",
        Kind::SharedObject => "shared object",
        Kind::Failure => "failed compilation",
        Kind::Answer => "oracle's answer",
        Kind::Loop => "loop",
    }
}

fn line(entry: &EntryInfo) -> String {
    let name = entry.name.to_string();
    let size = quantity::bytes(entry.disk_bytes);
    match &entry.summary {
        Some(summary) => format!(
            "{name:.12}  {size:>10}  {}  {}  {}",
            kind(summary.kind),
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
        Ok(entry) if screen.json => {
            screen.json(&entry);
            Exit::Fine
        }
        Ok(entry) => {
            show_entry(&entry, screen);
            Exit::Fine
        }
        Err(error) => {
            screen.error(&error.to_string());
            Exit::Usage
        }
    }
}

fn show_entry(entry: &EntryInfo, screen: &Screen) {
    let when = |ns: u64| quantity::date(ns as f64 / 1e9);
    let line = |name: &str, text: &str| screen.line(&format!("{name:13} {text}"));
    line("key", &entry.name.to_string());
    line("on disk", &quantity::bytes(entry.disk_bytes));
    line("last used", &when(entry.last_use_ns));
    let Some(summary) = &entry.summary else {
        return line(
            "holds",
            "nothing that is an entry; `sweeper cache verify` says why",
        );
    };
    let metadata = &summary.metadata;
    line(
        "holds",
        &format!(
            "{}, {}",
            kind(summary.kind),
            quantity::bytes(summary.payload_bytes)
        ),
    );
    line("digest", &summary.payload_digest.to_string());
    line("made", &when(metadata.created_ns));
    line("took", &quantity::time_ns(metadata.compile_ns as f64));
    line("sources", &metadata.sources.join(" "));
    line("options", &metadata.options.join(" "));
    line("target", &metadata.arch);
    line("compiler", &metadata.compiler);
    if let Some(resources) = resources_in_words(&metadata.resources) {
        line("resources", &resources);
    }
    for field in &metadata.key_fields {
        line(
            "key field",
            &format!("{} {:.12}", field.tag, field.digest.to_string()),
        );
    }
    for log in metadata.log_tail.lines() {
        line("log", log);
    }
}
