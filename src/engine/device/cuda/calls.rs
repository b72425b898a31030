//! The target of a launch: a kernel of ours, or a library of NVIDIA's, which is opened when it is
//! first needed.

use std::ffi::c_void;
use std::rc::Rc;
use std::time::Instant;

use sweeper_program::{Arg, Kernel, KernelId, Library, Program, Step};

use super::attention::Fused;
use super::blas::{Blas, Product};
use super::dnn::{Convolution, Dnn};
use super::driver::Fault;
use super::libraries::Nvidia;
use super::module::Function;

/// The target of a launch.
pub enum Callable {
    /// A kernel of a loaded cubin.
    Function(Function),
    /// A product by cuBLASLt.
    Product(Box<Product>),
    /// A convolution by cuDNN.
    Convolution(Box<Convolution>),
    /// An attention by cuDNN.
    Attention(Box<Fused>),
}

/// NVIDIA's libraries, as far as they were needed.
#[derive(Default)]
pub struct Vendor {
    blas: Option<Open<Blas>>,
    dnn: Option<Open<Dnn>>,
}

/// A library that is open.
struct Open<L> {
    handle: Rc<L>,
    /// How long opening it took.
    open_ns: u64,
}

impl<L> Open<L> {
    /// Opens a library, and takes the time.
    fn timed(open: impl FnOnce() -> Result<Rc<L>, Fault>) -> Result<Self, Fault> {
        let start = Instant::now();
        let handle = open()?;
        let open_ns = start.elapsed().as_nanos() as u64;
        Ok(Open { handle, open_ns })
    }
}

impl Vendor {
    /// How long opening those libraries took that a program calls and that are open, in
    /// nanoseconds.
    pub fn open_ns(&self, program: &Program) -> u64 {
        let calls = |is_called: fn(&Library) -> bool| {
            let mut kernels = program.kernels.iter();
            kernels.any(|kernel| matches!(kernel, Kernel::Library(library) if is_called(library)))
        };
        let blas = self.blas.as_ref().map_or(0, |held| held.open_ns);
        let dnn = self.dnn.as_ref().map_or(0, |held| held.open_ns);
        blas * u64::from(calls(|library| matches!(library, Library::Matmul(_))))
            + dnn * u64::from(calls(|library| !matches!(library, Library::Matmul(_))))
    }

    /// Prepares a call of a program.
    ///
    /// # Errors
    /// A missing library, with the package to install; a launch with other arguments than the call
    /// has; a call that the library can't do.
    pub fn callable(
        &mut self,
        program: &Program,
        kernel: KernelId,
        library: &Library,
        stream: *mut c_void,
    ) -> Result<Callable, Fault> {
        let launches = launches_of(program, kernel);
        for args in &launches {
            check_library_launch(library, args)?;
        }
        let scratch_bytes = launches.iter().map(|args| scratch(program, library, args));
        let scratch_bytes = scratch_bytes.min().unwrap_or(0);
        match library {
            Library::Matmul(call) => {
                let blas = match &self.blas {
                    Some(held) => Rc::clone(&held.handle),
                    None => {
                        let opened = Open::timed(|| {
                            Nvidia::CublasLt.load().map_err(Fault::refused)?;
                            Blas::open()
                        })?;
                        Rc::clone(&self.blas.insert(opened).handle)
                    }
                };
                let product =
                    Product::new(&blas, call, scratch_bytes, alignment(program, &launches))?;
                Ok(Callable::Product(Box::new(product)))
            }
            Library::Conv2d(call) => {
                let convolution = Convolution::new(&self.dnn(stream)?, call, scratch_bytes)?;
                Ok(Callable::Convolution(Box::new(convolution)))
            }
            Library::Attention(call) => {
                let fused = Fused::new(&self.dnn(stream)?, call, scratch_bytes)?;
                Ok(Callable::Attention(Box::new(fused)))
            }
        }
    }

    /// cuDNN, which is opened when it is first needed.
    fn dnn(&mut self, stream: *mut c_void) -> Result<Rc<Dnn>, Fault> {
        if let Some(held) = &self.dnn {
            return Ok(Rc::clone(&held.handle));
        }
        let opened = Open::timed(|| {
            Nvidia::Cudnn.load().map_err(Fault::refused)?;
            Dnn::open(stream)
        })?;
        Ok(Rc::clone(&self.dnn.insert(opened).handle))
    }
}

/// The arguments of all launches of a kernel.
fn launches_of(program: &Program, kernel: KernelId) -> Vec<&[Arg]> {
    fn collect<'a>(steps: &'a [Step], kernel: KernelId, launches: &mut Vec<&'a [Arg]>) {
        for step in steps {
            match step {
                Step::Launch {
                    kernel: own, args, ..
                } if *own == kernel => launches.push(args),
                Step::Repeat { body, .. } => collect(body, kernel, launches),
                _ => {}
            }
        }
    }
    let mut launches = Vec::new();
    collect(&program.prologue, kernel, &mut launches);
    collect(&program.steps, kernel, &mut launches);
    launches
}

/// Checks that a launch has the arguments of its call, each as long as the call reads or writes.
fn check_library_launch(library: &Library, args: &[Arg]) -> Result<(), Fault> {
    let reads = library.read_count();
    let wanted = library.operand_lens();
    let is_right = |(index, arg): (usize, &Arg)| match arg {
        Arg::Read(view) => index < reads && view.len >= wanted[index],
        Arg::Write(view) => index >= reads && wanted.get(index).is_none_or(|len| view.len >= *len),
        Arg::Int(_) | Arg::Float(_) | Arg::Scalar(_) => false,
    };
    let count = wanted.len();
    if (count..=count + 1).contains(&args.len()) && args.iter().enumerate().all(is_right) {
        return Ok(());
    }
    Err(Fault::refused(format!(
        "`{}` needs operands of {wanted:?} elements, and may have scratch memory",
        library.name()
    )))
}

/// Bytes of a launch's scratch memory, its last argument; 0 where it has none.
fn scratch(program: &Program, library: &Library, args: &[Arg]) -> usize {
    match args.get(library.operand_lens().len()) {
        Some(Arg::Write(view)) => view.len * program.buffers[view.buffer.0].dtype.size_bytes(),
        _ => 0,
    }
}

/// A power of two of which all operands' addresses are multiples, in bytes: buffers start at
/// multiples of 256.
fn alignment(program: &Program, launches: &[&[Arg]]) -> u32 {
    let views = launches.iter().flat_map(|args| args.iter());
    let of = |arg: &Arg| match arg {
        Arg::Read(view) | Arg::Write(view) => {
            let element = program.buffers[view.buffer.0].dtype.size_bytes() as u32;
            match view.offset.fixed_value() {
                Some(0) => 256,
                Some(offset) => (element << offset.trailing_zeros().min(8)).min(256),
                None => element,
            }
        }
        Arg::Int(_) | Arg::Float(_) | Arg::Scalar(_) => 256,
    };
    views.map(of).min().unwrap_or(256)
}
