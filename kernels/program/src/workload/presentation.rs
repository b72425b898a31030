//! What the engine has to know of a workload's parameters by name, as data: which axis leads, which
//! sizes follow from others, which word is compared, which flags there are.

use crate::parameters::Parameters;

/// How rows of a workload are shown, where it has names of its own for that. Rows of others are
/// told apart by the sizes in which they differ.
#[derive(Clone, Copy, Debug)]
pub struct Presentation {
    /// Sizes that name a row, in the order of their columns; others in which rows differ come last.
    /// Words may be among them, such as names of models, whose values are in the order of size.
    pub sizes: &'static [&'static str],
    /// Those of the sizes that follow from parameters.
    pub derived: &'static [DerivedSize],
    /// The size that most plots have as their axis.
    pub leading_axis: &'static str,
    /// The size that is looked at beside that of the leading axis.
    pub second_axis: &'static str,
    /// The word of which each value has lines and tables of its own, and is compared, in a workload
    /// whose tables are ratios by that word.
    pub compared: Option<ComparedWord>,
    /// What throughput counts; compulsory bytes where there is nothing better.
    pub work: Option<Amount>,
    /// What memory is divided by, if by anything.
    pub memory: Option<Amount>,
}

impl Presentation {
    /// The derived size called `name`.
    pub fn derived(&self, name: &str) -> Option<&'static DerivedSize> {
        self.derived.iter().find(|derived| derived.name == name)
    }
}

/// A size that follows from parameters. Manifests may derive it under its name; it is known without
/// that, too.
#[derive(Clone, Copy, Debug)]
pub struct DerivedSize {
    /// Name in manifests and files.
    pub name: &'static str,
    /// The parameters that it depends on.
    pub factors: &'static [&'static str],
    /// How it depends on them.
    pub formula: Formula,
    /// Name on axes and in titles.
    pub label: &'static str,
    /// What it counts, as the beginning of a sentence.
    pub about: &'static str,
}

/// How a derived size follows from parameters.
#[derive(Clone, Copy, Debug)]
pub enum Formula {
    /// As the product of its factors.
    Product,
    /// As this function of all parameters of a row says, where they make sense.
    Computed(fn(&Parameters) -> Option<f64>),
}

/// A parameter whose values are words, and rows are compared that differ in it alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComparedWord {
    /// Name of the parameter.
    pub name: &'static str,
    /// The value that others are relative to.
    pub reference: &'static str,
    /// True if tables have its values with a capital.
    pub is_capitalized: bool,
}

/// An amount that follows from sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    /// What is counted.
    pub unit: &'static str,
    /// The sizes that are multiplied.
    pub factors: &'static [&'static str],
}

/// The sampling of a benchmark that was published. Configurations are three sizes; each has a
/// canonical shape, whose first size is a bucket, as is the product of the two others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedSampling {
    /// The sizes.
    pub sizes: [&'static str; 3],
    /// Buckets of the first size and of the product, by the names that manifests have for them;
    /// used where a manifest gives none.
    pub buckets: [(&'static str, &'static [u64]); 2],
}

/// A flag of the command line that stands for a key of manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShorthandFlag {
    /// The flag and its other spellings.
    pub names: &'static [&'static str],
    /// What it sets.
    pub sets: FlagTarget,
    /// Meaning, one line.
    pub about: &'static str,
}

/// What a [`ShorthandFlag`] sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagTarget {
    /// The axis of a parameter, to the flag's value.
    Axis(&'static str),
    /// A backend in place of another, wherever that is listed. The flag takes no value.
    Backend {
        /// The one that is replaced.
        from: &'static str,
        /// The one that is measured.
        to: &'static str,
    },
}

/// The flag of a parameter.
pub const fn axis_flag(
    names: &'static [&'static str],
    parameter: &'static str,
    about: &'static str,
) -> ShorthandFlag {
    ShorthandFlag {
        names,
        sets: FlagTarget::Axis(parameter),
        about,
    }
}
