//! Floating-point modes of a thread: rounding, and whether denormal numbers count as 0. A kernel
//! that changes them must not change what the next program computes.

use rayon::ThreadPool;

/// The modes of one thread, without the exceptions that have been seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FloatModes(u64);

#[cfg(target_arch = "x86_64")]
const EXCEPTIONS: u32 = 0x3f;

impl FloatModes {
    /// Those of this thread; always equal where the processor's register is not known.
    #[cfg_attr(
        any(target_arch = "x86_64", target_arch = "aarch64"),
        expect(unsafe_code, reason = "a register of the processor's")
    )]
    pub(super) fn of_thread() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let mut modes = 0_u32;
            // SAFETY: stores MXCSR, 32 bits, to the variable.
            unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut modes, options(nostack)) };
            FloatModes(u64::from(modes & !EXCEPTIONS))
        }
        #[cfg(target_arch = "aarch64")]
        {
            let modes: u64;
            // SAFETY: reads FPCR, which has no other effect.
            unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) modes, options(nomem, nostack)) };
            FloatModes(modes)
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        FloatModes(0)
    }

    /// Makes them those of this thread again; whether they were not.
    #[cfg_attr(
        any(target_arch = "x86_64", target_arch = "aarch64"),
        expect(unsafe_code, reason = "a register of the processor's")
    )]
    pub(super) fn restore(self) -> bool {
        if FloatModes::of_thread() == self {
            return false;
        }
        #[cfg(target_arch = "x86_64")]
        {
            let modes = self.0 as u32;
            // SAFETY: modes that this thread had; no exception is pending that they would unmask.
            unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const modes, options(nostack)) };
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: modes that this thread had.
        unsafe {
            std::arch::asm!("msr fpcr, {}", in(reg) self.0, options(nomem, nostack));
        }
        true
    }
}

/// The modes of all threads of a pool.
pub(super) struct PoolModes(Vec<FloatModes>);

impl PoolModes {
    /// Those of now.
    pub(super) fn of(pool: &ThreadPool) -> Self {
        PoolModes(pool.broadcast(|_| FloatModes::of_thread()))
    }

    /// Makes them those of the pool's threads again; whether one had others.
    pub(super) fn restore(&self, pool: &ThreadPool) -> bool {
        let changed = pool.broadcast(|thread| self.0[thread.index()].restore());
        changed.contains(&true)
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_flushes_denormals_computes_with_them_again() {
        // Compilers do not know that modes change results: each is one of its own.
        let half = || std::hint::black_box(std::hint::black_box(f32::MIN_POSITIVE) * 0.5);
        let before = FloatModes::of_thread();
        assert!(!before.restore());
        // Flush to zero, and denormals are zeros.
        FloatModes(before.0 | 0x8040).restore();
        assert_eq!(half(), 0.0);
        assert!(before.restore());
        assert!(half() > 0.0);
    }

    #[test]
    fn every_thread_of_a_pool_has_its_modes_again() {
        let threads = rayon::ThreadPoolBuilder::new().num_threads(2);
        let pool = threads.build().unwrap();
        let before = PoolModes::of(&pool);
        assert!(!before.restore(&pool));
        pool.broadcast(|thread| {
            if thread.index() == 1 {
                FloatModes(before.0[1].0 | 0x8000).restore();
            }
        });
        assert!(before.restore(&pool));
        assert!(!before.restore(&pool));
    }
}
