//! Manifests with the settings that a command line lays over them.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use super::exit::Exit;
use super::screen::Screen;
use super::{examples, place};
use sweeper_manifest::diagnostics::{Code, Diagnostics};
use sweeper_manifest::overrides::{FLAGS, FlagInfo};
use sweeper_manifest::render::{Colour, render};
use sweeper_manifest::{Diagnostic, Manifest, OverrideOrigin, Overrides, Sources, registry};

/// A manifest, and settings that are laid over it.
#[derive(Args)]
pub struct ManifestArgs {
    /// The manifest, a TOML file, or the name of one in `manifests` or of an example
    #[arg(required = true)]
    manifest: Option<PathBuf>,
    #[arg(skip)]
    used: OnceLock<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    /// Make warnings errors
    #[arg(long, short = 'D')]
    deny_warnings: bool,
}

/// `--set`, and the flags that stand for keys, in the order typed.
struct Settings {
    sets: Vec<String>,
    flags: Vec<(&'static str, String)>,
}

fn name(flag: &'static str) -> &'static str {
    flag.trim_start_matches('-')
}

fn argument(known: &'static FlagInfo) -> Arg {
    let first = name(known.flags[0]);
    let aliases = known.flags[1..].iter().map(|flag| name(flag));
    let argument = Arg::new(first)
        .long(first)
        .visible_aliases(aliases)
        .help(format!("{} ({})", known.about, known.path))
        .help_heading("Settings");
    // Of flags that undo each other the last one typed holds.
    let undoing = FLAGS.iter().filter(|other| known.is_undone_by(other));
    let argument = argument.overrides_with_all(undoing.map(|other| name(other.flags[0])));
    match &known.value {
        Some(_) => argument.action(ArgAction::SetTrue),
        None => argument
            .value_name("VALUE")
            .action(ArgAction::Append)
            .allow_hyphen_values(true),
    }
}

impl Args for Settings {
    fn augment_args(command: Command) -> Command {
        let set = Arg::new("set")
            .long("set")
            .value_name("KEY=VALUE")
            .action(ArgAction::Append)
            .help("Override any key of the manifest, such as grid.T=256,512")
            .help_heading("Settings");
        command.arg(set).args(FLAGS.iter().map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Settings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let sets = matches
            .get_many::<String>("set")
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        let mut flags = Vec::new();
        for known in FLAGS.iter() {
            let id = name(known.flags[0]);
            if known.value.is_some() {
                if matches.get_flag(id) {
                    flags.push((known.flags[0], String::new()));
                }
            } else if let Some(values) = matches.get_many::<String>(id) {
                // One that is given again adds to its list, as a comma does.
                let values: Vec<&str> = values.map(String::as_str).collect();
                flags.push((known.flags[0], values.join(",")));
            }
        }
        Ok(Settings { sets, flags })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl ManifestArgs {
    /// The manifest with all settings resolved; warnings are shown.
    ///
    /// # Errors
    /// [`Exit::Manifest`] or [`Exit::Usage`], after everything that is wrong was shown.
    pub fn load(&self, screen: &Screen) -> Result<Manifest, Exit> {
        self.load_with(&[], screen)
    }

    /// The folder that was named in place of a manifest, if it was.
    pub fn folder(&self) -> Option<&Path> {
        self.manifest.as_deref().filter(|path| path.is_dir())
    }

    /// As [`ManifestArgs::load`], of another manifest, which this one is from now on.
    ///
    /// # Errors
    /// As there.
    pub fn load_in_place(&self, path: PathBuf, screen: &Screen) -> Result<Manifest, Exit> {
        self.load_at(path, &[], screen)
    }

    fn load_at(
        &self,
        path: PathBuf,
        more: &[(&str, String, &str)],
        screen: &Screen,
    ) -> Result<Manifest, Exit> {
        let overrides = self.overrides(more).map_err(|wrong| {
            screen.to_stderr(&wrong.to_string());
            Exit::Usage
        })?;
        load(self.used.get_or_init(|| path), &overrides, screen)
    }

    /// The command line that names this manifest with these settings, from any folder.
    pub fn again(&self) -> Vec<String> {
        let used = self.used.get().or(self.manifest.as_ref());
        let used = used.cloned().unwrap_or_default();
        let path = std::path::absolute(&used).unwrap_or(used);
        let mut words = vec![path.display().to_string()];
        for assignment in &self.settings.sets {
            words.extend(["--set".to_owned(), assignment.clone()]);
        }
        for (flag, value) in &self.settings.flags {
            words.push((*flag).to_owned());
            let takes_none = FLAGS
                .iter()
                .any(|known| known.flags.contains(flag) && known.value.is_some());
            if !takes_none {
                words.push(value.clone());
            }
        }
        words
    }

    /// Another manifest with the same settings, all of whose backends are those of strangers, on a
    /// device if it is told one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn load_other(&self, path: &Path, device: Option<&str>) -> Result<Manifest, String> {
        let overrides = self.overrides(&[]).map_err(|wrong| wrong.to_string());
        let mut overrides = with_environment(&overrides?);
        overrides.flag("--untrusted", None);
        if let Some(device) = device {
            overrides.flag("--device", Some(device));
        }
        let shown = |wrong: Diagnostics| render(&wrong, Colour::Never);
        let mut sources = Sources::read(path).map_err(shown)?;
        sources.read_for(&overrides);
        Manifest::resolve(&sources, &overrides, &registry()).map_err(shown)
    }

    /// The settings of the command line, with those of a verb's own flags.
    fn overrides(&self, more: &[(&str, String, &str)]) -> Result<Overrides, Diagnostics> {
        let mut overrides = Overrides::new();
        overrides.deny_lints = self.deny_warnings;
        for assignment in &self.settings.sets {
            overrides.set(assignment)?;
        }
        for (flag, value) in &self.settings.flags {
            overrides.flag(flag, Some(value));
        }
        for (key, text, flag) in more {
            let origin = OverrideOrigin::Flag((*flag).to_owned());
            overrides.push(*key, text.clone(), origin);
        }
        Ok(overrides)
    }

    /// As [`ManifestArgs::load`], with values of a verb's own flags: key, text, flag.
    ///
    /// # Errors
    /// As there.
    pub fn load_with(
        &self,
        more: &[(&str, String, &str)],
        screen: &Screen,
    ) -> Result<Manifest, Exit> {
        let path = examples::manifest(self.manifest.as_deref(), screen)?;
        self.load_at(path, more, screen)
    }
}

/// Reads and resolves a manifest.
///
/// # Errors
/// [`Exit::Manifest`], after everything that is wrong was shown.
pub fn load(path: &Path, overrides: &Overrides, screen: &Screen) -> Result<Manifest, Exit> {
    let colour = if screen.colour {
        Colour::Always
    } else {
        Colour::Never
    };
    let mut sources = Sources::read(path).map_err(|wrong| {
        screen.to_stderr(&render(&wrong, colour));
        Exit::Manifest
    })?;
    let overrides = &with_environment(overrides);
    sources.read_for(overrides);
    match Manifest::resolve(&sources, overrides, &registry()) {
        Ok(manifest) => {
            let mut warnings = manifest.warnings().clone();
            let cache = network_cache(&manifest, sweeper_cache::is_network);
            let denied = overrides.deny_lints && cache.is_some();
            if let Some(warning) = cache {
                warnings.push(warning);
            }
            if !warnings.is_empty() && (denied || !screen.quiet) {
                screen.to_stderr(&render(&warnings, colour));
            }
            if denied {
                Err(Exit::Manifest)
            } else {
                Ok(manifest)
            }
        }
        Err(wrong) => {
            screen.to_stderr(&render(&wrong, colour));
            Err(Exit::Manifest)
        }
    }
}

/// The settings of a command line, and under them those of the environment.
fn with_environment(overrides: &Overrides) -> Overrides {
    let mut overrides = overrides.clone();
    if let Some(dir) = place::cache_dir_of_environment() {
        let origin = OverrideOrigin::Environment(place::CACHE_DIR.to_owned());
        // As a string of TOML: a folder may look like a number.
        let text = format!("{:?}", dir.to_string_lossy());
        overrides.push("cache.dir", text, origin);
    }
    overrides
}

/// A warning if the cache that a manifest names is on a network: every job of a cluster would wait
/// for its locks.
fn network_cache(manifest: &Manifest, is_network: fn(&Path) -> bool) -> Option<Diagnostic> {
    let dir = manifest.cache.dir.as_ref().filter(|dir| is_network(dir))?;
    let origin = manifest.provenance().origin("cache.dir");
    let message = format!(
        "the kernel cache `{}` ({origin}) is on a network file system",
        dir.display()
    );
    let warning = Diagnostic::new(Code::NetworkCache, message);
    Some(warning.help(
        "name a local folder, such as `${TMPDIR:-/tmp}/sweeper`, and a shared one as \
         `cache.upstream`, which is only read",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_on_a_network_is_warned_of() {
        let text = "schema = 1\nname = \"a\"\nabout = \"b\"\n[grid]\nelements = 1\n[case.c]\n\
                    workload = \"copy\"\n[cache]\ndir = \"/nfs/cache\"\n";
        let sources = Sources::from_text("m.toml", text);
        let manifest = Manifest::resolve(&sources, &Overrides::new(), &registry()).unwrap();
        assert_eq!(network_cache(&manifest, |_| false), None);
        let warning = network_cache(&manifest, |path| path.starts_with("/nfs")).unwrap();
        assert!(warning.message.contains("`/nfs/cache`"), "{warning:?}");
        assert!(warning.message.contains("m.toml:9"), "{warning:?}");
    }
}
