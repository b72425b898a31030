//! The target of a plan: the device that a manifest asks for, or a GPU that need not be here.

use clap::Args;
use sweeper_program::Target as Instructions;

use super::exit::Exit;
use super::screen::Screen;
use crate::run;
use sweeper_engine::device::platform::{device_of_arch, platform};
use sweeper_manifest::Manifest;
use sweeper_manifest::plan::PlanDevice;
use sweeper_model::hardware::DeviceIdentity;

/// A GPU by its architecture.
#[derive(Args)]
pub struct ArchArgs {
    /// Plan for a GPU of this architecture, such as sm_90, whatever this machine has
    #[arg(long, value_name = "ARCH")]
    arch: Option<String>,
}

/// The target of a plan.
pub struct Target {
    /// The device that programs are made for.
    pub plan: PlanDevice,
    /// The devices, at least one; of one that is not here only the architecture is known.
    pub devices: Vec<DeviceIdentity>,
}

impl Target {
    /// The GPU that is named, or else the device that the manifest asks for.
    ///
    /// # Errors
    /// The exit code, after the reason was shown.
    pub fn new(args: &ArchArgs, manifest: &Manifest, screen: &Screen) -> Result<Self, Exit> {
        match &args.arch {
            Some(arch) => Target::of_arch(arch, screen),
            None => Target::of_manifest(manifest, screen),
        }
    }

    /// The devices that a manifest asks for.
    ///
    /// # Errors
    /// The exit code, after the reason was shown.
    pub fn of_manifest(manifest: &Manifest, screen: &Screen) -> Result<Self, Exit> {
        let requests = run::device_requests(manifest).and_then(|requests| {
            let first = run::device_request(manifest)?;
            Ok((first, requests))
        });
        match requests {
            Ok((first, requests)) => Ok(Target {
                plan: run::plan_device(&first),
                devices: requests.iter().map(run::local_device).collect(),
            }),
            Err(error) => {
                let exit = Exit::from(&error);
                let elsewhere = match exit {
                    Exit::Impossible => {
                        "; `sweeper plan`, `why` and `compile` take --arch sm_90 (or another) for a GPU that is not here"
                    }
                    _ => "",
                };
                screen.error(&format!("{error}{elsewhere}"));
                Err(exit)
            }
        }
    }

    /// A GPU that need not be here.
    ///
    /// # Errors
    /// [`Exit::Usage`], after the reason was shown.
    pub fn of_arch(arch: &str, screen: &Screen) -> Result<Self, Exit> {
        let device = device_of_arch(arch).map_err(|reason| {
            screen.error(&reason);
            Exit::Usage
        })?;
        Ok(Target {
            plan: PlanDevice {
                kind: device.kind,
                target: (platform(device.kind).target)(&device),
            },
            devices: vec![device],
        })
    }

    /// The first device.
    pub fn device(&self) -> &DeviceIdentity {
        &self.devices[0]
    }

    /// The target in words: the kind, and of a GPU its architecture.
    pub fn name(&self) -> String {
        match &self.plan.target {
            Instructions::Cuda { arch } => format!("{} ({arch})", self.plan.kind.name()),
            Instructions::Cpu => self.plan.kind.name().to_owned(),
        }
    }
}
