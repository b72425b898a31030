//! Text of kernels from their description: one [`Nest`], two targets.
//!
//! `stages` says in which order a nest's values are computed, for both targets. `c` and `cuda` write it
//! down as loops over what a block has of rows and columns, and say how large blocks are: by the extents
//! of a launch alone, so that sums come out the same whatever the device and however many threads it
//! has. `launch` puts arguments in order. `pack` makes one kernel of several nests, whose blocks it deals out; `total` makes
//! one of two, the second of which one block does.
//!
//! How exact sums are. A sum's terms go to partial sums in f32: of a row on a CPU 64 of them, on a GPU
//! one or more a thread; over rows one a column and block. Partial sums of a row or of everything are
//! added pairwise or in f64. With `n` terms in a partial sum the error is at most `n eps` times the sum
//! of the terms' absolute values, about `sqrt(n) eps` for terms whose roundings are independent. On a GPU, where nothing but the
//! sum becomes of exponentials `e^(x - max x)`, these are less exact themselves, as `exp_in_sum` in functions.cuh says.

mod text;
mod stages;
mod exponentials;
mod names;
mod launch;
mod pack;
mod total;
mod scalar;
mod c;
mod cuda;

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use crate::nest::{Bounds, Extents, Fill, Launch, Nest, Over, Parts, Value};
use crate::program::{Arg, Index, Kernel, KernelId, KernelSource, Language, SourceFile, Step};
use crate::workload::Target;

use launch::{Parameter, Split};

/// A kernel for one target, and how it is launched.
#[derive(Clone, Debug)]
pub struct Generated {
    members: Vec<Member>,
    source: KernelSource,
}

/// A nest of a kernel: its only one, or one of a pack.
#[derive(Clone, Debug)]
struct Member {
    nest: Nest,
    parameters: Vec<Parameter>,
    schedule: Schedule,
    /// Operands that are memory of the kernel and no arguments: of a total, its parts.
    own: Vec<usize>,
    /// Whether one block of another member does it, whose parts it adds up.
    adds_up_parts: bool,
}

/// Parts of a total, which the two nests of a kernel hand over: memory of the kernel, no argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Position of the operand that the first nest leaves parts in.
    pub left: usize,
    /// Position of the operand that the second nest adds them up from.
    pub added_up: usize,
}

/// How a kernel shares out its work.
#[derive(Clone, Debug, PartialEq)]
enum Schedule {
    C(c::Schedule),
    Cuda(cuda::Schedule),
}

impl Generated {
    /// Validates the nest and decides how it runs on the target.
    ///
    /// # Errors
    /// A sentence that says what can't be generated, and why.
    pub fn new(nest: &Nest, bounds: Bounds, target: &Target) -> Result<Generated, String> {
        let member = Member::new(nest, bounds, target)?;
        let (parameters, nest) = (&member.parameters, &member.nest);
        let text = match &member.schedule {
            Schedule::C(schedule) => c::text(nest, schedule, parameters)?,
            Schedule::Cuda(schedule) => cuda::text(nest, schedule, parameters)?,
        };
        Ok(Generated {
            source: source(&words(&[&member]), &text, target),
            members: vec![member],
        })
    }

    /// One kernel that does the work of several nests which need nothing of each other: each block has a share of
    /// one of them. Nests that are alike share text.
    ///
    /// # Errors
    /// As [`Generated::new`], or where one of the nests can't be in a pack.
    pub fn pack(nests: &[(&Nest, Bounds)], target: &Target) -> Result<Generated, String> {
        if let [(nest, bounds)] = nests {
            return Generated::new(nest, *bounds, target);
        }
        let misfit = nests.iter().find(|(nest, _)| !may_be_packed(nest));
        if let Some((nest, _)) = misfit {
            return Err(format!("{} shares blocks with no other kernel", nest.name));
        }
        let mut members = Vec::with_capacity(nests.len());
        for (nest, bounds) in nests {
            members.push(Member::new(nest, *bounds, target)?);
        }
        pack::same_threads(&mut members)?;
        let all: Vec<&Member> = members.iter().collect();
        let name = format!("pack_{}_{}", members.len(), words(&all));
        let text = pack::text(&members, target)?;
        Ok(Generated {
            source: source(&name, &text, target),
            members,
        })
    }

    /// One kernel that leaves totals in parts and adds them up: one block of the first nest's launch does all of the second, of
    /// which one block is enough. What the second loads along its columns are the first one's parts, as `shared` tells for
    /// each; in launches, memory of either means nothing, nor does the number of those columns.
    ///
    /// # Errors
    /// As [`Generated::new`], or where the nests are others than [`may_total`] says.
    pub fn total(
        nests: [(&Nest, Bounds); 2],
        shared: &[Shared],
        target: &Target,
    ) -> Result<Generated, String> {
        let [(first, _), (last, _)] = nests;
        if !may_total(first, last) {
            let (first, last) = (&first.name, &last.name);
            return Err(format!("{last} does not add up totals of {first}"));
        }
        let mut members = Vec::with_capacity(2);
        for (nest, bounds) in nests {
            members.push(Member::new(nest, bounds, target)?);
        }
        total::join(&mut members, shared)?;
        let all: Vec<&Member> = members.iter().collect();
        let name = format!("whole_{}", words(&all));
        Ok(Generated {
            source: source(&name, &total::text(&members)?, target),
            members,
        })
    }

    /// The generated text and the headers that it includes.
    pub fn kernel(&self) -> Kernel {
        Kernel::Compiled(self.source.clone())
    }

    /// The number of parts in which a launch leaves last reductions; 1 where they are whole, as in a pack or a total.
    pub fn parts(&self, extents: &Extents) -> usize {
        match &self.members[..] {
            [member] => member.parts(extents),
            _ => 1,
        }
    }

    /// A launch of a kernel of one nest. `kernel` is its position among its program's kernels.
    ///
    /// # Errors
    /// As [`Generated::launch_all`].
    ///
    /// # Panics
    /// As [`Generated::launch_all`].
    pub fn launch(&self, kernel: KernelId, launch: &Launch) -> Result<Step, String> {
        self.launch_all(kernel, std::slice::from_ref(launch))
    }

    /// A launch of a kernel, with sizes and memory for each nest. `kernel` is its position among its
    /// program's kernels.
    ///
    /// # Errors
    /// A sentence where sizes are beyond what kernels and launches count in 32 bits.
    ///
    /// # Panics
    /// If a launch has fewer operands or numbers than its nest.
    pub fn launch_all(&self, kernel: KernelId, launches: &[Launch]) -> Result<Step, String> {
        let mut args = Vec::new();
        let mut ends = Vec::new();
        let mut blocks: u64 = 0;
        for (member, launch) in self.members.iter().zip(launches) {
            let (own, arguments) = member.launch(launch)?;
            args.extend(arguments);
            if member.adds_up_parts {
                // It has no blocks of its own.
                continue;
            }
            blocks = blocks.saturating_add(own);
            ends.push(Arg::Int(Index::fixed(blocks as i64)));
        }
        if blocks >= MOST {
            return Err(format!("{blocks} blocks in one launch"));
        }
        ends.pop();
        args.splice(0..0, ends);
        if total::has_collector(&self.members) {
            blocks += 1;
        }
        let geometry = self.members.iter().map(|member| match &member.schedule {
            Schedule::C(_) => c::geometry(blocks),
            Schedule::Cuda(schedule) => schedule.geometry(blocks),
        });
        let geometry = geometry.max_by_key(|geometry| geometry.shared_bytes);
        Ok(Step::Launch {
            kernel,
            geometry: geometry.unwrap_or_else(|| c::geometry(0)),
            args,
        })
    }
}

/// Whether a nest can be one of several in a kernel: it is elementwise, or adds up rows without leaving parts. Such
/// blocks are short and need few registers, so that none is slowed down by what the others need.
pub fn may_be_packed(nest: &Nest) -> bool {
    let mut reductions = nest.values.iter().filter_map(|value| match value {
        Value::Reduce { over, .. } => Some(*over),
        _ => None,
    });
    reductions.all(|over| over == Over::Rows && nest.parts == Parts::One)
}

/// Whether a nest may be done by one block of another one: that one leaves nothing but totals in parts, and this one
/// adds up what it loads along its columns, in one block, however many columns there are.
pub fn may_total(first: &Nest, last: &Nest) -> bool {
    let overs = |nest: &Nest| -> Vec<Over> {
        let values = nest.values.iter();
        let overs = values.filter_map(|value| match value {
            Value::Reduce { over, .. } => Some(*over),
            _ => None,
        });
        overs.collect()
    };
    let leaves = overs(first);
    let adds_up = overs(last);
    first.parts == Parts::Many
        && leaves.contains(&Over::All)
        && !leaves.contains(&Over::Rows)
        && last.parts == Parts::One
        && !adds_up.is_empty()
        && adds_up.iter().all(|over| *over == Over::All)
        && !last.values.contains(&Value::Column)
}

/// These bounds, and what a kernel for a GPU may know of all launches whose rows and columns lie as this one's do.
/// Kernels for CPUs are the same for all.
pub fn known(nest: &Nest, bounds: Bounds, launch: &Launch, target: &Target) -> Bounds {
    let Target::Cuda { arch } = target else {
        return Bounds {
            columns: bounds.columns,
            ..Bounds::default()
        };
    };
    let launch = launch::merged(nest, launch);
    let rows = launch.extents.row_count();
    let of = |has_few_rows, has_many_rows| Bounds {
        is_one_row: rows == 1,
        has_few_rows,
        has_many_rows,
        ..bounds
    };
    // What can't be scheduled can't be generated, which says why.
    let scheduled = |is_special| cuda::Schedule::new(nest, of(is_special, is_special), arch).ok();
    let fill = |schedule: &cuda::Schedule| cuda::fill(schedule, nest, &launch);
    // Where lanes are not full, kernels for few rows and for many were not measured.
    let fits = |schedule: &cuda::Schedule| match (schedule.has_few_rows, schedule.rows > 1) {
        (false, false) => true,
        (true, _) => schedule.takes(rows) && fill(schedule) == Fill::Lanes,
        (_, true) => {
            let is_enough = rows >= cuda::MANY_ROWS && schedule.is_filled_by(rows);
            is_enough && fill(schedule) == Fill::Lanes
        }
    };
    let schedule = match scheduled(true) {
        Some(special) if !fits(&special) => scheduled(false),
        schedule => schedule,
    };
    let Some(schedule) = schedule else {
        return of(false, false);
    };
    Bounds {
        fill: fill(&schedule),
        ..of(schedule.has_few_rows, schedule.rows > 1)
    }
}

/// Bytes of the arguments that a nest adds to a pack.
pub fn packed_bytes(nest: &Nest) -> usize {
    // Its own, and at which block it ends.
    8 * (launch::parameters(nest).len() + 1)
}

impl Member {
    fn new(nest: &Nest, bounds: Bounds, target: &Target) -> Result<Member, String> {
        nest.validate()?;
        if nest.stores.is_empty() {
            return Err("a nest that stores nothing".to_owned());
        }
        Ok(Member {
            parameters: launch::parameters(nest),
            schedule: match target {
                Target::Cpu => Schedule::C(c::Schedule::new(nest, bounds)?),
                Target::Cuda { arch } => Schedule::Cuda(cuda::Schedule::new(nest, bounds, arch)?),
            },
            nest: nest.clone(),
            own: vec![],
            adds_up_parts: false,
        })
    }

    /// Parameters that a launch gives.
    fn given(&self) -> Vec<Parameter> {
        let is_given = |parameter: &Parameter| match parameter {
            Parameter::Pointer(operand) => !self.own.contains(operand),
            _ => true,
        };
        let all = self.parameters.iter().copied();
        all.filter(is_given).collect()
    }

    /// Whether both have the same text: all but the names that people give.
    fn has_text_of(&self, other: &Member) -> bool {
        let nameless = |member: &Member| Nest {
            name: String::new(),
            ..member.nest.clone()
        };
        self.schedule == other.schedule
            && self.own == other.own
            && nameless(self) == nameless(other)
    }

    fn split(&self, extents: &Extents) -> Split {
        match &self.schedule {
            Schedule::C(schedule) => schedule.split(extents),
            Schedule::Cuda(schedule) => schedule.split(extents),
        }
    }

    /// The number of parts in which a launch leaves last reductions.
    fn parts(&self, extents: &Extents) -> usize {
        let mut stores = self.nest.stores.iter();
        let has_last = stores.any(|store| self.nest.is_last(store.value));
        match self.nest.parts {
            Parts::Many if has_last => {
                let split = self.split(extents);
                let pieces = if self.parts_have_columns() {
                    1
                } else {
                    split.pieces(extents)
                };
                (split.row_blocks(extents) * pieces) as usize
            }
            _ => 1,
        }
    }

    /// Whether there are reductions over rows: each piece of columns then has its place in a part.
    fn parts_have_columns(&self) -> bool {
        match &self.schedule {
            Schedule::C(schedule) => schedule.has_over_rows(),
            Schedule::Cuda(schedule) => schedule.has_over_rows(),
        }
    }

    /// The blocks of a launch, and its arguments.
    fn launch(&self, launch: &Launch) -> Result<(u64, Vec<Arg>), String> {
        let mut launch = launch::merged(&self.nest, launch);
        if let (Schedule::Cuda(schedule), true) = (&self.schedule, self.adds_up_parts) {
            // What each thread of the block takes of the parts.
            launch.extents.columns = schedule.threads().into();
        }
        let (rows, columns) = (launch.extents.row_count(), launch.extents.columns);
        let split = self.split(&launch.extents);
        let blocks = split
            .row_blocks(&launch.extents)
            .saturating_mul(split.pieces(&launch.extents));
        let is_gpu = matches!(self.schedule, Schedule::Cuda(_));
        // A kernel on a GPU counts columns, up to a step beyond the last, and rows of several dimensions in 32 bits.
        let is_counted =
            !is_gpu || (columns < launch::MOST_COLUMNS && (self.nest.row_dims == 1 || rows < MOST));
        if !is_counted || blocks >= MOST {
            return Err(format!("{rows} x {columns} elements in one launch"));
        }
        if let Schedule::Cuda(schedule) = &self.schedule {
            let fill = schedule.fill;
            if fill > Fill::Any && cuda::fill(schedule, &self.nest, &launch) < fill {
                return Err(format!(
                    "a kernel for columns that fill {fill:?}, where these do not"
                ));
            }
            if schedule.is_one_row && rows != 1 {
                return Err(format!("a kernel for one row, where there are {rows}"));
            }
            if schedule.has_few_rows && !schedule.takes(rows) {
                return Err(format!("a kernel for few rows, where there are {rows}"));
            }
            if schedule.rows > 1 && !schedule.is_filled_by(rows) {
                let at_once = schedule.rows;
                return Err(format!(
                    "a kernel for {at_once} rows at a time, where there are {rows}"
                ));
            }
            let leaves_own = !self.own.is_empty() && !self.adds_up_parts;
            if leaves_own && blocks > cuda::MOST_PARTS {
                return Err(format!("a total of {blocks} parts"));
            }
        }
        let args = launch::arguments(&self.given(), &self.nest, &launch, split);
        Ok((blocks, args))
    }
}

/// Blocks of a launch, and what kernels count in 32 bits, are fewer.
const MOST: u64 = 1 << 31;

/// Stands for the name of a kernel's function in generated text.
const ENTRY: &str = "@ENTRY";

/// A kernel's text and the headers that it includes. Its function is called `name`, and after that by a digest of the text.
fn source(name: &str, text: &str, target: &Target) -> KernelSource {
    let entry = format!("{name}_{}", digest(text));
    let text = text.replace(ENTRY, &entry);
    let (language, extension, headers): (_, _, &[SourceFile]) = match target {
        Target::Cpu => (Language::C, "c", &c::HEADERS),
        Target::Cuda { .. } => (Language::Cuda, "cu", &cuda::HEADERS),
    };
    let main = SourceFile {
        name: Cow::Owned(format!("{entry}.{extension}")),
        text: Cow::Owned(text),
    };
    let files = std::iter::once(main).chain(headers.iter().cloned());
    KernelSource {
        language,
        files: Cow::Owned(files.collect()),
        entry: Cow::Owned(entry),
        defines: vec![],
    }
}

/// Words that a kernel's function is named after.
fn words(members: &[&Member]) -> String {
    let mut words: Vec<&str> = Vec::new();
    for word in members.iter().flat_map(|member| text::words(&member.nest)) {
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words.truncate(3);
    words.join("_")
}

/// Tells kernels with the same words apart.
fn digest(text: &str) -> String {
    let digest = Sha256::digest(text);
    let bytes = digest.iter().take(4);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}
