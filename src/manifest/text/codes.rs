//! The codes of diagnostics, one list, with a sentence each.

/// Severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The manifest can't be used.
    Error,
    /// The manifest can be used, but probably differs from the author's intention.
    Warning,
}

macro_rules! codes {
    ($($(#[$attribute:meta])* $name:ident = $id:literal, $about:literal;)*) => {
        /// The kind of a diagnostic. Codes of warnings start with `W`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(missing_docs, reason = "`Code::about` says what each code is")]
        pub enum Code { $($name,)* }

        impl Code {
            /// All codes, ascending.
            pub const ALL: &[Code] = &[$(Code::$name,)*];

            /// The code as it is printed, such as `E0104`.
            pub const fn id(self) -> &'static str {
                match self { $(Code::$name => $id,)* }
            }

            /// The meaning of the code, in one sentence.
            pub const fn about(self) -> &'static str {
                match self { $(Code::$name => $about,)* }
            }
        }
    };
}

codes! {
    Syntax = "E0001", "The text is not TOML.";
    DuplicateKey = "E0002", "A key appears twice in one table.";
    NotFound = "E0003", "There is no such manifest.";
    Directory = "E0004", "The manifest is a directory.";
    Unreadable = "E0005", "The manifest can't be read.";
    Empty = "E0006", "The manifest has nothing in it.";
    NotText = "E0007", "The manifest is not UTF-8 text.";
    TooLarge = "E0008", "The manifest is too large to have been written by a person.";
    ExtendsCycle = "E0009", "A manifest extends itself, through others or not.";
    Schema = "E0010", "The version of the format is missing or unknown.";
    Csv = "E0011", "A table of values can't be used.";
    InputFile = "E0012", "A file of tensors can't be used.";
    Variable = "E0013", "An environment variable is not set, or not allowed here.";
    Source = "E0014", "The source of a kernel can't be used.";

    UnknownKey = "E0101", "A key that the format does not have.";
    MissingKey = "E0102", "A key that is needed is not there.";
    WrongType = "E0103", "A value of the wrong type.";
    UnknownName = "E0104", "An expression uses a name that is not in scope.";
    UnknownWorkload = "E0105", "A workload that this build does not have.";
    UnknownBackend = "E0106", "A backend that the workload does not have.";
    UnknownPhase = "E0107", "A phase that the workload does not have.";
    UnknownDtype = "E0108", "A type of elements that the workload is not defined for.";
    UnknownAxis = "E0109", "An axis that the case does not have.";
    UnknownWord = "E0110", "A word that is not among those which this key takes.";
    UnknownCase = "E0111", "A case that the manifest does not have.";
    UnknownChoice = "E0112", "A word that a parameter can't be.";

    OutOfBounds = "E0201", "A setting is outside its bounds.";
    ParameterBounds = "E0202", "A value is outside the bounds of the parameter.";
    EmptyAxis = "E0203", "An axis or a list has no values.";
    MixedKinds = "E0204", "The values of an axis are of several kinds.";
    Duplicate = "E0205", "Something is listed twice.";
    AxisForm = "E0206", "An axis is written in a form that does not exist or has no end.";
    UnequalZip = "E0207", "Tied axes have different lengths.";
    AxisTwice = "E0209", "An axis is defined twice.";
    MissingParameter = "E0210", "A parameter without a default has no axis.";
    Buckets = "E0211", "Buckets are not ascending positive integers.";
    Include = "E0212", "An extra point does not say which point it is.";
    Conflict = "E0213", "Two keys exclude each other.";
    PublishedOnly = "E0214", "A key belongs to the published sampling alone.";
    PublishedNeeds = "E0215", "The published sampling needs an integer axis that a case lacks.";
    NeedsCycle = "E0216", "Cases wait for each other.";
    NoCases = "E0217", "The manifest has no cases.";
    GridTooLarge = "E0218", "A case has more points than a sweep can hold.";
    Override = "E0219", "A setting on the command line or in the environment can't be applied.";
    Name = "E0220", "A name has characters that names can't have.";
    NullScript = "E0221", "The scripted device has no usable answer.";
    Declaration = "E0222", "A declared workload or backend contradicts itself.";

    ExpressionSyntax = "E0301", "The text is not an expression.";
    ExpressionKind = "E0302", "An expression combines kinds that don't go together.";
    NotACondition = "E0303", "A condition is neither true nor false.";
    Arithmetic = "E0304", "An expression has no value for some point.";
    DerivedCycle = "E0305", "Derived values use each other.";

    EmptyCase = "E0401", "No point of a case is left.";
    DerivedParameter = "E0402", "A derived value is not a value of the parameter that it gives.";

    NeverFires = "W0501", "A rule never applies to any point.";
    NeverReached = "W0502", "A value of an axis appears in no point.";
    UnusedAxis = "W0503", "An axis that the workload does not use.";
    FloatEquality = "W0504", "A float is compared with `==`.";
    Merged = "W0505", "Points that are the same are measured once.";
    NetworkCache = "W0507", "The kernel cache is on a network file system.";
    NoBaseline = "W0508", "The baseline of ratios is not measured.";
}

impl Code {
    /// Whether the code is an error or a warning.
    pub fn severity(self) -> Severity {
        if self.id().starts_with('W') {
            Severity::Warning
        } else {
            Severity::Error
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_ascend_and_are_described() {
        let ids: Vec<_> = Code::ALL.iter().map(|code| code.id()).collect();
        assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
        for code in Code::ALL {
            assert!(code.about().ends_with('.'), "{}", code.id());
        }
    }
}
