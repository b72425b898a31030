//! A run that was recorded, as verbs read it.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::contents::Contents;
use super::environment::Environment;
use super::find;
use super::folder::FolderError;
use super::parts;
use sweeper_model::files;
use sweeper_model::identity::PointId;
use sweeper_model::row::Row;

/// A plan that is longer is not read to see whether it is there.
const LONG_PLAN_BYTES: u64 = 1 << 22;

/// A run that was recorded, for reading.
pub struct Recorded {
    /// The folder of the run.
    pub path: PathBuf,
    /// The machine, devices and compilers of the run.
    pub environment: Environment,
}

impl Recorded {
    /// Reads the run in `path`.
    ///
    /// # Errors
    /// If it is not a run's folder, if it was damaged, or if a newer program wrote it.
    pub fn read(path: &Path) -> Result<Self, FolderError> {
        let file = path.join("environment.json");
        let unusable = |reason: String| FolderError::Foreign {
            path: file.clone(),
            reason,
        };
        let advice = "`sweeper run` of its manifest, with the same flags, writes it again";
        let bytes = files::read(&file).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound if path.join("journal.jsonl").exists() => unusable(format!(
                "the file is missing, the journal is there; {advice}"
            )),
            _ => FolderError::Io {
                path: file.clone(),
                error,
            },
        })?;
        let environment = serde_json::from_slice(&bytes)
            .map_err(|error| unusable(format!("damaged: {error}; {advice}")))?;
        Ok(Recorded {
            path: path.to_owned(),
            environment,
        })
    }

    /// True if its plan can be read; of a long one, which takes seconds to read, that it is whole.
    pub fn has_plan(&self) -> bool {
        let ends = |file: &File| {
            let length = file.metadata()?.len();
            let mut ends = [0; 2];
            file.read_exact_at(&mut ends[..1], 0)?;
            file.read_exact_at(&mut ends[1..], length - 1)?;
            Ok::<_, io::Error>((length, ends))
        };
        let found = files::open(&self.path.join("plan.json")).and_then(|file| ends(&file));
        match found {
            Ok((length, ends)) if length > LONG_PLAN_BYTES => ends == *b"{}",
            Ok(_) => self.planned_points().is_some(),
            Err(_) => false,
        }
    }

    /// Points of its plan, and those that its manifest leaves out: each has a row in the end. None
    /// where the plan can't be read.
    pub fn planned_points(&self) -> Option<usize> {
        use serde::de::IgnoredAny;
        #[derive(serde::Deserialize)]
        struct Points {
            points: Vec<IgnoredAny>,
            #[serde(default)]
            skips: Vec<IgnoredAny>,
        }
        let plan: Points = self.plan()?;
        Some(plan.points.len() + plan.skips.len())
    }

    /// The place of each point in its plan, where the plan can be read. The journal has rows as
    /// they were finished, which differs from run to run.
    pub fn plan_order(&self) -> HashMap<PointId, usize> {
        #[derive(serde::Deserialize)]
        struct Point {
            point: PointId,
        }
        #[derive(serde::Deserialize)]
        struct Points {
            points: Vec<Point>,
        }
        let plan: Option<Points> = self.plan();
        let points = plan.into_iter().flat_map(|plan| plan.points).enumerate();
        points.map(|(place, point)| (point.point, place)).collect()
    }

    fn plan<T: serde::de::DeserializeOwned>(&self) -> Option<T> {
        let bytes = files::read(&self.path.join("plan.json")).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// The folder in which the run's folder lies; an attempt lies one deeper.
    pub fn results_folder(&self) -> Option<&Path> {
        match find::attempt_number(&self.path) {
            Some(_) => self.path.parent()?.parent(),
            None => self.path.parent(),
        }
    }

    /// The contents of its journals.
    ///
    /// # Errors
    /// If a journal can't be read.
    pub fn contents(&self) -> Result<Contents, FolderError> {
        contents_of(&self.path)
    }

    /// Rows of the run: of each journal in the order written.
    ///
    /// # Errors
    /// If a journal can't be read.
    pub fn rows(&self) -> Result<Vec<Row>, FolderError> {
        let path = self.path.join("journal.jsonl");
        self.contents()?
            .rows()
            .map_err(|reason| FolderError::Foreign { path, reason })
    }

    /// The text of its resolved manifest.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn manifest_text(&self) -> Result<String, FolderError> {
        let path = self.path.join("manifest.toml");
        files::read_to_string(&path).map_err(|error| FolderError::Io { path, error })
    }
}

/// The contents of the journals in the folder of a run.
///
/// # Errors
/// If a journal can't be read.
pub fn contents_of(folder: &Path) -> Result<Contents, FolderError> {
    let journals = parts::journals(folder).map_err(|error| FolderError::Io {
        path: folder.to_owned(),
        error,
    })?;
    Ok(Contents::read_all(&journals)?)
}
