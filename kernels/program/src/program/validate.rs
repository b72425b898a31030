//! Mistakes of the backend that made a program, found before it runs.

use super::{Arg, Binding, Index, Program, Step, View};

impl Program {
    /// Looks for mistakes of the backend that made the program.
    ///
    /// # Errors
    /// The first mistake: a view outside its buffer, a loop that does not exist, a given buffer
    /// that is written, arguments of one launch that overlap.
    pub fn validate(&self) -> Result<(), String> {
        self.validate_steps(&self.prologue, &mut Vec::new())?;
        self.validate_steps(&self.steps, &mut Vec::new())
    }

    fn validate_steps(&self, steps: &[Step], counts: &mut Vec<u64>) -> Result<(), String> {
        for step in steps {
            match step {
                Step::Repeat { count, body } => {
                    counts.push(*count);
                    self.validate_steps(body, counts)?;
                    counts.pop();
                }
                Step::Launch { kernel, args, .. } => {
                    if kernel.0 >= self.kernels.len() {
                        return Err(format!("there is no kernel {}", kernel.0));
                    }
                    for arg in args {
                        match arg {
                            Arg::Read(view) => self.validate_view(view, false, counts)?,
                            Arg::Write(view) => self.validate_view(view, true, counts)?,
                            Arg::Int(index) => validate_depth(index, counts)?,
                            Arg::Float(_) | Arg::Scalar(_) => {}
                        }
                    }
                }
                Step::Copy { from, to } => {
                    self.validate_view(from, false, counts)?;
                    self.validate_view(to, true, counts)?;
                    if from.len != to.len {
                        return Err(format!("a copy of {} elements to {}", from.len, to.len));
                    }
                }
                Step::Fill { view, .. } => self.validate_view(view, true, counts)?,
            }
        }
        Ok(())
    }

    /// Checks that a view stays inside its buffer in every iteration, by the range of its offset.
    fn validate_view(&self, view: &View, written: bool, counts: &[u64]) -> Result<(), String> {
        let Some(buffer) = self.buffers.get(view.buffer.0) else {
            return Err(format!("there is no buffer {}", view.buffer.0));
        };
        if written && buffer.binding == Binding::Given {
            return Err(format!("`{}` is given, and written", buffer.name));
        }
        validate_depth(&view.offset, counts)?;
        let Some((least, most)) = view.offset.range(counts) else {
            return Ok(());
        };
        if least < 0 || most as usize + view.len > buffer.len {
            return Err(format!(
                "views of {} elements from {least} to {most} of `{}`, which has {}",
                view.len, buffer.name, buffer.len
            ));
        }
        Ok(())
    }
}

fn validate_depth(index: &Index, counts: &[u64]) -> Result<(), String> {
    if index.depth() > counts.len() {
        return Err(format!(
            "an index needs {} loops, there are {}",
            index.depth(),
            counts.len()
        ));
    }
    Ok(())
}
