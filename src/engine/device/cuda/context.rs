//! A context on one device, and the stream in which everything happens.

use cudarc::driver::{result, sys};

use super::driver::{During, Fault};

/// The device's primary context, current on the thread that opened it, with one stream.
pub struct Context {
    device: sys::CUdevice,
    stream: sys::CUstream,
}

impl Context {
    /// Opens a device by number. Waits spin: a thread that sleeps is woken late.
    ///
    /// # Errors
    /// The driver's.
    #[expect(unsafe_code, reason = "calls of the driver")]
    pub fn open(ordinal: u32) -> Result<Self, Fault> {
        let device = result::device::get(ordinal as i32).during("opening the device")?;
        let spin = sys::CUctx_flags::CU_CTX_SCHED_SPIN as u32;
        // SAFETY: `device` came from the driver; the context is released once, when `Context`
        // drops, and every object that was made in it holds a `Context` for as long.
        unsafe {
            sys::cuDevicePrimaryCtxSetFlags_v2(device, spin)
                .result()
                .and_then(|()| result::primary_ctx::retain(device))
                .and_then(|context| result::ctx::set_current(context))
        }
        .during("making a context")?;
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking)
            .during("making a stream")?;
        Ok(Context { device, stream })
    }

    /// The driver's handle of the stream, valid for as long as the context.
    pub fn stream(&self) -> sys::CUstream {
        self.stream
    }

    /// The device, as the driver knows it.
    pub fn device(&self) -> sys::CUdevice {
        self.device
    }

    /// An attribute of the device.
    ///
    /// # Errors
    /// The driver's.
    pub fn attribute(&self, attribute: sys::CUdevice_attribute) -> Result<i32, Fault> {
        super::identity::attribute(self.device, attribute)
    }

    /// How many multiprocessors the device has.
    ///
    /// # Errors
    /// The driver's.
    pub fn multiprocessors(&self) -> Result<u32, Fault> {
        let count = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        Ok(self.attribute(count)?.max(1) as u32)
    }

    /// Waits until the stream is idle. Errors of kernels that were launched before show here.
    ///
    /// # Errors
    /// The driver's.
    #[expect(unsafe_code, reason = "a call of the driver")]
    pub fn synchronize(&self) -> Result<(), Fault> {
        // SAFETY: the stream lives as long as `self`.
        unsafe { result::stream::synchronize(self.stream) }.during("running the program")
    }
}

impl Drop for Context {
    #[expect(unsafe_code, reason = "calls of the driver")]
    fn drop(&mut self) {
        // SAFETY: both are released once. A device that was lost answers with an error, and there
        // is nothing left to release then.
        unsafe {
            let _ = result::stream::destroy(self.stream);
            let _ = result::primary_ctx::release(self.device);
        }
    }
}
