//! Compiled kernels in the device's memory.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::time::Instant;

use cudarc::driver::{DriverError, result, sys};
use sys::CUfunction_attribute as Attribute;

use super::driver::{During, Fault};
use sweeper_program::Geometry;

use crate::device::Artifact;

/// The first bytes of every cubin: it is an ELF file.
const ELF_MAGIC: &[u8] = b"\x7fELF";

/// The size of an argument cell, in bytes.
const CELL_BYTES: usize = 8;

/// Dynamic shared memory that a block has without asking, in bytes.
const UNASKED_SHARED_BYTES: u32 = 48 << 10;

/// Of a multiprocessor's memory for first-level cache and shared memory, the most that can be
/// shared memory.
const MOST_SHARED_PERCENT: i32 = 100;

/// Blocks of a cluster that every device with clusters has.
const PORTABLE_CLUSTER: u32 = 8;

/// A kernel that can be launched.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    handle: sys::CUfunction,
    /// Bytes of each parameter.
    parameter_bytes: &'static [usize],
}

impl Function {
    /// The function `name` of a text in PTX, which the driver translates for its device.
    ///
    /// # Errors
    /// The driver's, or if the function takes other arguments than cells.
    ///
    /// # Panics
    /// If the text has a zero byte.
    #[expect(unsafe_code, reason = "a call of the driver")]
    pub fn of_ptx(ptx: &str, name: &str) -> Result<Self, Fault> {
        let ptx = CString::new(ptx).expect("a text of this program");
        // SAFETY: a text ends with a zero.
        let module = unsafe { result::module::load_data(ptx.as_ptr().cast()) }
            .during(&format!("translating `{name}`"))?;
        Function::of_module(module, name)
    }

    fn of_module(module: sys::CUmodule, name: &str) -> Result<Self, Fault> {
        let handle = find(module, name)?;
        // Modules stay loaded, and so do the facts about their functions.
        let parameter_bytes = parameter_bytes(handle, name)?.leak();
        Ok(Function {
            handle,
            parameter_bytes,
        })
    }

    /// The driver's handle. Modules stay loaded, so that it is valid for as long as the process.
    pub fn handle(self) -> sys::CUfunction {
        self.handle
    }

    /// The size of each argument that it takes, in bytes.
    pub fn parameter_bytes(self) -> &'static [usize] {
        self.parameter_bytes
    }

    /// Queues a launch with these arguments in a stream.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Panics
    /// If it takes another number of arguments: that is a bug of the caller.
    #[expect(unsafe_code, reason = "kernels are foreign functions")]
    pub fn launch(
        self,
        stream: sys::CUstream,
        geometry: &Geometry,
        cells: &mut [u64],
    ) -> Result<(), Fault> {
        assert_eq!(cells.len(), self.parameter_bytes.len(), "a cell for each");
        let mut pointers: Vec<*mut c_void> = cells
            .iter_mut()
            .map(|cell| std::ptr::from_mut(cell).cast())
            .collect();
        let mut attributes = attributes(geometry);
        let config = sys::CUlaunchConfig {
            gridDimX: geometry.grid[0],
            gridDimY: geometry.grid[1],
            gridDimZ: geometry.grid[2],
            blockDimX: geometry.block[0],
            blockDimY: geometry.block[1],
            blockDimZ: geometry.block[2],
            sharedMemBytes: geometry.shared_bytes,
            hStream: stream,
            attrs: attributes.as_mut_ptr(),
            numAttrs: attributes.len() as u32,
        };
        // SAFETY: there is a pointer for every parameter of the function, each to a cell at least
        // as large (`parameter_bytes`); the driver copies the cells before it returns. Accesses of
        // the kernel to the addresses are its own responsibility, as with any foreign function: it
        // runs in a worker process, which may die of it.
        unsafe {
            sys::cuLaunchKernelEx(
                &raw const config,
                self.handle,
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        }
        .result()
        .during("launching")
    }

    /// Allows launches with so much dynamic shared memory, and clusters of so many blocks.
    ///
    /// # Errors
    /// The driver's, if a block or a cluster can't have as much.
    pub fn allow(self, shared_bytes: u32, cluster: u32) -> Result<(), Fault> {
        if shared_bytes > 0 {
            self.allow_shared(shared_bytes)?;
        }
        match cluster > PORTABLE_CLUSTER {
            true => self.allow_large_clusters(),
            false => Ok(()),
        }
    }

    /// Allows launches with so much dynamic shared memory: above 48 KiB a kernel must ask.
    ///
    /// # Errors
    /// The driver's, if a block can't have as much.
    fn allow_shared(self, bytes: u32) -> Result<(), Fault> {
        let most = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let doing = || format!("asking for {bytes} bytes of shared memory");
        self.set(most, bytes as i32).during(&doing())?;
        if bytes <= UNASKED_SHARED_BYTES {
            return Ok(());
        }
        // Kernels that want another split of a multiprocessor's memory between its first-level
        // cache and shared memory don't run beside each other on it.
        let split = Attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
        self.set(split, MOST_SHARED_PERCENT).during(&doing())
    }

    /// Allows clusters of more than eight blocks, which not every device has.
    ///
    /// # Errors
    /// The driver's.
    fn allow_large_clusters(self) -> Result<(), Fault> {
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
        self.set(attribute, 1).during("asking for large clusters")
    }

    #[expect(unsafe_code, reason = "a call of the driver")]
    fn set(self, attribute: Attribute, value: i32) -> Result<(), DriverError> {
        // SAFETY: the function belongs to a module that stays loaded.
        unsafe { result::function::set_function_attribute(self.handle, attribute, value) }
    }
}

/// All modules that were loaded, by kernel key. They are never unloaded.
#[derive(Default)]
pub struct Modules {
    loaded: HashMap<String, Module>,
}

#[derive(Clone, Copy)]
struct Module {
    handle: sys::CUmodule,
    load_ns: u64,
}

impl Modules {
    /// How long loading took, summed over those kernels of `keys` that are loaded, in nanoseconds.
    pub fn load_ns<'k>(&self, keys: impl IntoIterator<Item = &'k str>) -> u64 {
        let loaded = keys.into_iter().filter_map(|key| self.loaded.get(key));
        loaded.map(|module| module.load_ns).sum()
    }

    /// The function `name` of an artifact, which is loaded at most once.
    ///
    /// # Errors
    /// If the bytes are not a cubin for this device, lack the function, or it takes other arguments
    /// than cells.
    pub fn function(&mut self, artifact: &Artifact, name: &str) -> Result<Function, Fault> {
        let module = self.module(artifact)?;
        Function::of_module(module.handle, artifact.symbol(name))
    }

    /// The address of a variable of an artifact, by the name expression that was asked for, which
    /// has to hold so many bytes.
    ///
    /// # Errors
    /// As [`Modules::function`]; a variable that is not there, or is smaller.
    #[expect(unsafe_code, reason = "a call of the driver")]
    pub fn variable(&mut self, artifact: &Artifact, name: &str, bytes: u64) -> Result<u64, Fault> {
        let module = self.module(artifact)?;
        let shown = name.trim_start_matches('&');
        let symbol = CString::new(artifact.symbol(name).trim_start_matches('&'))
            .map_err(|_| Fault::refused(format!("`{shown}` is not a name of a variable")))?;
        let (mut address, mut size) = (0, 0);
        // SAFETY: the module stays loaded; the text ends with a zero; both pointers are to numbers
        // of the right type.
        unsafe {
            sys::cuModuleGetGlobal_v2(
                &raw mut address,
                &raw mut size,
                module.handle,
                symbol.as_ptr(),
            )
        }
        .result()
        .during(&format!("looking for the variable `{shown}`"))?;
        if (size as u64) < bytes {
            return Err(Fault::refused(format!(
                "`{shown}` has {size} bytes, and the tensor that is copied there {bytes}"
            )));
        }
        Ok(address)
    }

    /// The module of an artifact, which is loaded at most once.
    fn module(&mut self, artifact: &Artifact) -> Result<Module, Fault> {
        if let Some(&module) = self.loaded.get(&artifact.key) {
            return Ok(module);
        }
        let start = Instant::now();
        let module = Module {
            handle: load(artifact)?,
            load_ns: start.elapsed().as_nanos() as u64,
        };
        self.loaded.insert(artifact.key.clone(), module);
        Ok(module)
    }
}

#[expect(unsafe_code, reason = "a call of the driver")]
fn load(artifact: &Artifact) -> Result<sys::CUmodule, Fault> {
    let bytes = &artifact.bytes;
    if !bytes.starts_with(ELF_MAGIC) {
        return Err(Fault::refused(format!(
            "kernel {:.12} is not a cubin",
            artifact.key
        )));
    }
    // SAFETY: the bytes are a whole cubin, which says how long it is: they came out of NVRTC, and
    // the cache hands out only bytes with the digest of those that it was given.
    unsafe { result::module::load_data(bytes.as_ptr().cast()) }
        .during(&format!("loading kernel {:.12}", artifact.key))
}

#[expect(unsafe_code, reason = "a call of the driver")]
fn find(module: sys::CUmodule, name: &str) -> Result<sys::CUfunction, Fault> {
    let symbol = CString::new(name)
        .map_err(|_| Fault::refused(format!("`{name}` is not a name of a kernel")))?;
    // SAFETY: the module stays loaded.
    unsafe { result::module::get_function(module, symbol) }
        .during(&format!("looking for the kernel `{name}`"))
}

/// The sizes of a kernel's parameters. A launch reads a pointer for each, so it must be known.
#[expect(unsafe_code, reason = "a call of the driver")]
fn parameter_bytes(function: sys::CUfunction, name: &str) -> Result<Vec<usize>, Fault> {
    let mut sizes = Vec::new();
    loop {
        let count = sizes.len();
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the function belongs to a module that stays loaded; both pointers are to numbers
        // of the right type.
        let answer =
            unsafe { sys::cuFuncGetParamInfo(function, count, &raw mut offset, &raw mut size) };
        match answer {
            sys::CUresult::CUDA_SUCCESS if size <= CELL_BYTES => sizes.push(size),
            sys::CUresult::CUDA_SUCCESS => {
                return Err(Fault::refused(format!(
                    "argument {count} of `{name}` has {size} bytes, a cell has {CELL_BYTES}"
                )));
            }
            // There is no parameter with this number.
            sys::CUresult::CUDA_ERROR_INVALID_VALUE => return Ok(sizes),
            other => {
                other.result().during("asking for a kernel's parameters")?;
            }
        }
    }
}

/// The attributes of a launch beside its grid.
fn attributes(geometry: &Geometry) -> Vec<sys::CUlaunchAttribute> {
    use sys::CUlaunchAttributeID::{
        CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
        CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
    };
    let mut attributes = Vec::new();
    if geometry.cluster > 1 {
        let mut cluster = attribute(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
        cluster.value.clusterDim.x = geometry.cluster;
        cluster.value.clusterDim.y = 1;
        cluster.value.clusterDim.z = 1;
        attributes.push(cluster);
    }
    if geometry.overlaps {
        let mut overlap = attribute(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
        overlap.value.programmaticStreamSerializationAllowed = 1;
        attributes.push(overlap);
    }
    attributes
}

#[expect(unsafe_code, reason = "a foreign union")]
fn attribute(id: sys::CUlaunchAttributeID) -> sys::CUlaunchAttribute {
    // SAFETY: an attribute is plain numbers, for which zeros are valid.
    let mut attribute: sys::CUlaunchAttribute = unsafe { std::mem::zeroed() };
    attribute.id = id;
    attribute
}
