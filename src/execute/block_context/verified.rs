//! A point that is prepared and right, after its samples: whether it still is.

use super::*;

impl VerifiedPoint<'_> {
    /// The reason for which a point whose samples were taken is wrong, if it is.
    pub fn complaint(&self) -> Option<String> {
        if self.measurement.output_digest != self.last_digest {
            let why = self.complaint.as_ref();
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            return Some(format!("the outputs changed while it was timed{why}"));
        }
        overwritten(&self.changed_inputs).or_else(|| self.complaint.clone())
    }

    /// Whether the outputs of the last sample are to be judged: they are not those of the first.
    pub(super) fn varies(&self) -> bool {
        let has_changed = self.measurement.output_digest != self.last_digest;
        !self.is_deterministic || self.is_function && has_changed
    }

    /// Takes the verdict on the outputs of the last sample. Where nobody knows what is right, a
    /// change is a fault of its own.
    pub(super) fn take_last(&mut self, verdict: Verdict) {
        if self.is_deterministic && verdict.checked == Checked::None {
            return;
        }
        if self.is_deterministic {
            self.measurement.flags.push(Flag::Varying);
            self.is_deterministic = false;
        }
        self.complaint = verdict.complaint;
        // Another run would have another.
        (self.measurement.output_digest, self.last_digest) = (None, None);
    }

    /// Keeps the digest of the outputs of the last sample, which has just run; yields them where
    /// they are to be judged, as they may differ from those of the first.
    ///
    /// # Errors
    /// A lost device.
    pub(super) fn read_last(
        &mut self,
        instance: &ProblemInstance,
        device: &mut dyn Device,
    ) -> Result<Option<Tensors>, DeviceError> {
        if !device.computes() {
            return Ok(None);
        }
        if self.is_users {
            self.changed_inputs = device.restore_inputs(&instance.inputs)?;
        }
        // Results of a later iteration are not those that were judged.
        if self.carries_state && self.point.mode.iterations().is_some() {
            device.sample(self.prepared, 1)?;
        }
        let outputs = device.results(self.prepared, &self.specs)?;
        if device.judged(self.prepared).is_some() {
            self.last_digest = None;
            return Ok(None);
        }
        if self.is_deterministic {
            self.last_digest = Some(tensors::digest(&outputs));
        }
        Ok(Some(outputs))
    }
}
