//! Which kernels of libraries a function launches on a GPU, and what follows where a problem
//! requires own kernels.

use sweeper_program::Target;

use super::{BlockContext, VerifiedPoint};
use crate::device::{Device, DeviceError};
use sweeper_model::row::outcome::{LibraryUse, Status};

impl BlockContext<'_> {
    /// Notes which kernels of libraries a function launches, if nobody trusts it or its problem
    /// requires own kernels, after its last sample: a process that was profiled is slower.
    ///
    /// # Errors
    /// A lost device.
    pub fn note_libraries(
        &self,
        one: &mut VerifiedPoint<'_>,
        device: &mut dyn Device,
    ) -> Result<(), DeviceError> {
        let problem = &self.instance.problem;
        let needs_own = problem.requires_own_kernels(&one.point.backend);
        let is_asked = one.is_function && (one.calls.is_some() || needs_own);
        if !is_asked || device.target() == Target::Cpu || one.complaint().is_some() {
            return Ok(());
        }
        let calls = one.calls.clone();
        let audited = self.audited(one);
        let found = self.audit.library_use(&audited, calls.as_deref(), device);
        one.refusal = refusal(&found).filter(|_| needs_own);
        match found {
            Err(DeviceError::Lost(reason)) => Err(DeviceError::Lost(reason)),
            found => {
                one.measurement.library_use = found.ok().flatten();
                Ok(())
            }
        }
    }
}

/// Why a function is refused whose problem requires own kernels.
fn refusal(found: &Result<Option<LibraryUse>, DeviceError>) -> Option<(Status, String)> {
    let unknown = "the problem requires own kernels, and nobody can tell which ones this launches";
    Some(match found {
        Ok(Some(found)) => {
            let name = found.kernels.first()?;
            let reason = "is a kernel of a library, and the problem requires own kernels";
            (Status::Refused, format!("`{name}` {reason}"))
        }
        Ok(None) => (Status::Unavailable, unknown.to_owned()),
        Err(error) => (Status::Unavailable, format!("{unknown}: {error}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_that_requires_own_kernels_refuses_those_of_libraries() {
        let used = |kernels: &[&str]| {
            let kernels = kernels.iter().map(|name| (*name).to_owned()).collect();
            Ok(Some(LibraryUse {
                share: 0.5,
                kernels,
            }))
        };
        assert_eq!(refusal(&used(&[])), None);
        let (status, reason) = refusal(&used(&["nvjet_a", "nvjet_b"])).unwrap();
        assert_eq!(status, Status::Refused);
        assert!(reason.starts_with("`nvjet_a` is a kernel of a library, and"));
        let error = DeviceError::Unavailable("no CUPTI".to_owned());
        for (found, said) in [(Ok(None), "launches"), (Err(error), ": no CUPTI")] {
            let (status, reason) = refusal(&found).unwrap();
            assert_eq!(status, Status::Unavailable);
            assert!(reason.ends_with(said), "{reason}");
        }
    }
}
