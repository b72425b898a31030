//! `sweeper devices` and `sweeper doctor`: what works here, and what to install for what does not.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::exit::Exit;
use super::place;
use super::screen::Screen;
use crate::compile::kernels::Toolchain;
use crate::device::cpu::identity;
use crate::device::{DeviceIdentity, cuda};
use crate::quantity;

/// Arguments of `devices`.
#[derive(Args)]
pub struct DevicesArgs {}

/// Arguments of `doctor`.
#[derive(Args)]
pub struct DoctorArgs {}

/// Lists devices.
pub fn devices(_args: &DevicesArgs, screen: &Screen) -> Exit {
    let cpu = identity::host();
    let gpus = cuda::identity::all();
    if screen.json {
        let all: Vec<&DeviceIdentity> = [&cpu].into_iter().chain(gpus.unwrap_or(&[])).collect();
        screen.json(&all);
        return Exit::Fine;
    }
    screen.line(&format!(
        "cpu    {} ({} processors)",
        cpu.name,
        place::processors().0
    ));
    match gpus {
        Ok(gpus) => {
            for (ordinal, gpu) in gpus.iter().enumerate() {
                screen.line(&format!("cuda:{ordinal} {}", describe(gpu)));
            }
        }
        Err(reason) => screen.line(&format!("cuda   none: {reason}")),
    }
    screen.line("null   does nothing, in scripted times; for tests");
    Exit::Fine
}

/// A GPU in one line.
fn describe(gpu: &DeviceIdentity) -> String {
    let detail = |name: &str| gpu.details.get(name).map_or("?", String::as_str);
    let memory = detail("memory_bytes").parse().unwrap_or(0);
    format!(
        "{} ({}, {}, {} multiprocessors, driver {} for CUDA {}, {})",
        gpu.name,
        detail("arch"),
        quantity::bytes(memory),
        detail("multiprocessors"),
        detail("driver"),
        detail("cuda"),
        gpu.unit
    )
}

/// What is said of GPUs and their compiler. A machine without a GPU lacks nothing.
fn gpu_findings(toolchain: &Toolchain) -> Vec<Finding> {
    let finding = |subject, fine, text| Finding {
        subject,
        fine,
        text,
    };
    let gpus = match cuda::identity::all() {
        Ok(gpus) => gpus,
        Err(reason) => return vec![finding("cuda", true, format!("none: {reason}"))],
    };
    let mut findings: Vec<Finding> = gpus
        .iter()
        .map(|gpu| finding("cuda", true, describe(gpu)))
        .collect();
    findings.push(match toolchain.nvrtc() {
        Ok(nvrtc) => finding(
            "nvrtc",
            true,
            format!("{} at {}", nvrtc.version, nvrtc.path.display()),
        ),
        Err(reason) => finding("nvrtc", false, reason.to_owned()),
    });
    findings
}

/// One line of the doctor's report.
struct Finding {
    subject: &'static str,
    fine: bool,
    text: String,
}

/// Says what works here.
pub fn doctor(_args: &DoctorArgs, screen: &Screen) -> Exit {
    let findings = findings();
    if screen.json {
        let all: Vec<_> = findings
            .iter()
            .map(|finding| json!({ "subject": finding.subject, "fine": finding.fine, "text": finding.text }))
            .collect();
        screen.json(&all);
    } else {
        for finding in &findings {
            let mark = if finding.fine {
                screen.paint("32", "ok  ")
            } else {
                screen.paint("33;1", "look")
            };
            screen.line(&format!("{mark} {:10} {}", finding.subject, finding.text));
        }
    }
    if findings.iter().all(|finding| finding.fine) {
        Exit::Fine
    } else {
        Exit::Failures
    }
}

fn findings() -> Vec<Finding> {
    let finding = |subject, fine, text| Finding {
        subject,
        fine,
        text,
    };
    let (processors, source) = place::processors();
    let (dir, why) = place::cache_dir(None);
    let toolchain = place::toolchain(dir.exists().then_some(dir.as_path()));
    let compiler = match &toolchain.cc {
        Ok(cc) => finding(
            "compiler",
            true,
            format!("{} for {}", cc.version, cc.machine),
        ),
        Err(reason) => finding("compiler", false, reason.clone()),
    };
    let config = sweeper_cache::CacheConfig::new(&dir, 10 << 30);
    let cache = match sweeper_cache::Cache::open(config) {
        Ok(cache) => match cache.warning() {
            None => finding("cache", true, format!("{} ({why})", dir.display())),
            Some(warning) => finding("cache", false, warning.to_string()),
        },
        Err(error) => finding("cache", false, error.to_string()),
    };
    let results = PathBuf::from("results");
    let network = place::is_network(&results);
    let resolution = identity::clock_resolution_ns();
    let mut findings = vec![
        finding("processor", true, identity::host().name),
        finding("threads", true, format!("{processors} ({source})")),
        finding(
            "memory",
            true,
            format!("{} available", quantity::bytes(identity::available_bytes())),
        ),
        finding(
            "clock",
            resolution < 1000.0,
            format!("resolution {}", quantity::time_ns(resolution)),
        ),
        compiler,
        cache,
        finding(
            "results",
            true,
            if network {
                "on a network file system; the journal is synced every 200 ms"
            } else {
                "on a local file system"
            }
            .to_owned(),
        ),
    ];
    findings.extend(gpu_findings(&toolchain));
    findings
}
