//! What is noted of a program that is ready: the times of its preparation, choices, changes.

use crate::device::{Device, Prepared};
use sweeper_model::row::outcome::{Flag, Measurement};

/// Notes how long it took to make a program ready: by the device, or by the process that runs it.
pub(super) fn note_preparation(
    measurement: &mut Measurement,
    prepare_ns: u64,
    prepared: Prepared,
    device: &dyn Device,
) {
    let parts = device.preparation(prepared);
    let by_device_ns = prepare_ns + device.further_preparation_ns(prepared);
    // The time between import and first call is spent on inputs and checks.
    let own_ns = parts
        .as_ref()
        .filter(|parts| parts.referee_ns.is_none())
        .and_then(|parts| Some(parts.import_ns + parts.first_call_ns?));
    measurement.prepare_ns = Some(own_ns.unwrap_or(by_device_ns));
    let Some(parts) = parts else {
        return;
    };
    if let Some((median_ns, spread_ns)) = parts.referee_ns {
        measurement.referee_ns = Some(median_ns);
        measurement.referee_spread_ns = Some(spread_ns);
        return;
    }
    measurement.import_ns = Some(parts.import_ns);
    measurement.first_call_ns = parts.first_call_ns;
    if !parts.unlisted.is_empty() {
        measurement.flags.push(Flag::UnlistedSource);
    }
    measurement.unlisted_sources = parts.unlisted;
    note_choices(measurement, prepared, device);
}

/// Notes the choices of autotuners so far, and the program's changes of its process; a
/// call may lead to more.
pub(super) fn note_choices(measurement: &mut Measurement, prepared: Prepared, device: &dyn Device) {
    if let Some(parts) = device.preparation(prepared) {
        measurement.autotuned = parts.autotuned.into_iter().collect();
        note_changes(measurement, parts.changed.into_iter().collect());
    }
}

pub(super) fn note_changes(measurement: &mut Measurement, changes: Vec<String>) {
    measurement.process_changes = changes;
    let is_flagged = measurement.flags.contains(&Flag::ChangesProcess);
    if !is_flagged && !measurement.process_changes.is_empty() {
        measurement.flags.push(Flag::ChangesProcess);
    }
}
