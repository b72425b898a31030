//! A point that is prepared and right, in and after its samples: whether it still is.

use super::*;
use crate::auto::Auto;

impl BlockContext<'_> {
    /// Who takes the samples of a program, with its calls if nobody trusts it.
    pub(super) fn source(
        &self,
        runner: Option<Runner>,
        auto: Option<Auto>,
        specs: &[TensorSpec],
    ) -> Result<(Option<Rc<Calls>>, Source), Outcome> {
        if let Some(auto) = auto {
            return Ok((None, Source::Loop(Box::new(auto))));
        }
        match runner {
            Some(Runner::Referee) => {}
            Some(Runner::Command) => return Ok((None, Source::Starts)),
            _ => return Ok((None, Source::Device)),
        }
        let calls = self.calls(specs)?;
        Ok((Some(Rc::clone(&calls)), Source::Calls(calls)))
    }

    /// The calls of a program that nobody trusts.
    fn calls(&self, specs: &[TensorSpec]) -> Result<Rc<Calls>, Outcome> {
        if self.block.inputs.is_some() {
            let reason = "inputs of a file are the same in every call: nothing that is not trusted can \
                          be measured on them";
            return Err(Outcome::without_measurement(Status::Unavailable, reason));
        }
        let mut held = self.call_inputs.borrow_mut();
        let inputs = match &*held {
            Some(inputs) => Rc::clone(inputs),
            None => {
                let problem = Arc::clone(&self.instance.problem);
                let inputs = CallInputs::new(self.block, problem).map_err(failed)?;
                Rc::clone(held.insert(Rc::new(inputs)))
            }
        };
        Ok(Rc::new(Calls::new(inputs, specs)))
    }

    /// Compares the outputs of a point's last sample, which has just run, with those of its first;
    /// audits a foreign program.
    ///
    /// # Errors
    /// A lost device, or one that failed in the audit.
    pub fn read_last(
        &self,
        one: &mut VerifiedPoint<'_>,
        sampler: &mut Sampler,
        device: &mut dyn Device,
    ) -> Result<(), DeviceError> {
        if let Some(auto) = sampler.auto() {
            let point = (one.point, &one.specs[..], one.carries_state);
            one.complaint = auto_point::complaint(auto, &self.instance, point, device)?;
            one.measurement.hot_path = auto.first().cloned().map(Box::new);
            // Outputs of a program are not those of single operations to the bit.
            device.sample(one.prepared, 1)?;
        }
        if let Some(calls) = one.calls.clone() {
            let audited = self.audited(one);
            let complaint = self.audit.complaint_of_calls(&audited, &calls, device)?;
            one.take_complaint(complaint);
            return Ok(());
        }
        let read = self.reading(&one.specs).may_stay;
        let outputs = one.read_last(&self.instance, read, device)?;
        note_choices(&mut one.measurement, one.prepared, device);
        if let Some(outputs) = outputs {
            one.take_last(self.verdict(one.point, &outputs)?);
        }
        if one.is_audited && one.complaint.is_none() && device.computes() {
            let audited = self.audited(one);
            // Nobody chooses what others outraced, and other inputs take longer than its samples.
            one.complaint = match (sampler.is_outraced(), one.is_kernel) {
                (true, true) => audited.poisoned(1, device)?,
                (true, false) => None,
                (false, _) => self
                    .audit
                    .complaint(&audited, sampler.samples_ns(), device)?,
            };
            // Once, even if it is measured again.
            one.is_audited = false;
        }
        Ok(())
    }

    /// Before one of the first samples, which one is a matter of chance: runs a kernel on poisoned
    /// results, then once more, so that caches are as before other samples. The check of a program
    /// judges what its last sample left: one right run does not vouch for others.
    ///
    /// # Errors
    /// A lost device, or a program whose check fails.
    pub fn surprise(
        &self,
        one: &mut VerifiedPoint<'_>,
        samples: usize,
        device: &mut dyn Device,
    ) -> Result<(), DeviceError> {
        if device.judged(one.prepared).is_some() && samples == 1 + one.surprised_at % 2 {
            device.results(one.prepared, &one.specs)?;
        }
        if samples == one.surprised_at && one.is_audited && one.is_kernel && device.computes() {
            one.complaint = self.audited(one).poisoned(1, device)?;
            device.sample(one.prepared, 1)?;
        }
        Ok(())
    }

    pub(super) fn audited<'b>(&'b self, one: &'b VerifiedPoint<'_>) -> Audited<'b> {
        Audited {
            block: self.block,
            instance: &self.instance,
            showing: self.for_functions.as_ref().filter(|_| one.is_function),
            judge: self.judge.as_ref(),
            point: one.point,
            answers: self.answers,
            covering: covering_phase(self.block),
            program: one.prepared,
            specs: &one.specs,
            is_kernel: one.is_kernel,
            bits: one.first_bits.as_deref(),
        }
    }
}

impl VerifiedPoint<'_> {
    /// Whether it runs on the device itself, and not in another process.
    pub fn is_kernel(&self) -> bool {
        self.is_kernel
    }

    /// The reason for which a point whose samples were taken is wrong, if it is.
    pub fn complaint(&self) -> Option<String> {
        if self.first_bits != self.last_bits {
            let why = self.complaint.as_ref();
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            return Some(format!("the outputs changed while it was timed{why}"));
        }
        overwritten(&self.changed_inputs).or_else(|| self.complaint.clone())
    }

    /// Whether the outputs of the last sample are to be judged: they are not those of the first.
    pub(super) fn varies(&self) -> bool {
        let has_changed = self.first_bits != self.last_bits;
        !self.is_deterministic || self.is_users && has_changed
    }

    /// Takes what is wrong with calls of which no two had the same inputs, if anything.
    fn take_complaint(&mut self, complaint: Option<String>) {
        self.complaint = complaint;
        self.last_bits.clone_from(&self.first_bits);
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
        self.measurement.output_digest = None;
        self.last_bits.clone_from(&self.first_bits);
    }

    /// Keeps what tells the outputs of the last sample, which has just run; yields them where they
    /// are to be judged, as they may differ from those of the first.
    ///
    /// # Errors
    /// A lost device.
    pub(super) fn read_last(
        &mut self,
        instance: &ProblemInstance,
        may_stay: bool,
        device: &mut dyn Device,
    ) -> Result<Option<Outputs>, DeviceError> {
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
        self.last_bits = match self.is_deterministic {
            true => device.fingerprint(self.prepared)?,
            false => self.first_bits.clone(),
        };
        if self.is_deterministic && self.last_bits.is_some() && !self.varies() {
            return Ok(None);
        }
        let specs = &self.specs;
        let outputs = device.outputs(self.prepared, Reading { specs, may_stay })?;
        if device.judged(self.prepared).is_some() {
            self.last_bits.clone_from(&self.first_bits);
            return Ok(None);
        }
        let digest = || tensors::digest_of_outputs(&outputs);
        self.last_bits.get_or_insert_with(digest);
        Ok(Some(outputs).filter(|_| self.varies()))
    }
}
