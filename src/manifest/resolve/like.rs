//! `like = "Y"` of a backend: the keys of `[backend.Y]`, but for those that it has itself.

use super::merge;
use crate::grammar::section::{BACKENDS, Context, LIKE};
use crate::text::diagnostics::Code;
use crate::text::suggest;
use crate::text::texts::At;
use crate::text::tree::{Node, Raw, Table};

/// A backend that is like none.
pub(crate) struct Unlike {
    at: At,
    name: String,
    is_cycle: bool,
}

/// Gives every backend the keys of the one that it is like.
pub(crate) fn expand(root: &mut Node) -> Vec<Unlike> {
    let mut faults = Vec::new();
    let backends = root.table_mut().and_then(|root| root.get_mut(BACKENDS));
    let Some(backends) = backends.and_then(|entry| entry.value.table_mut()) else {
        return faults;
    };
    let written = backends.clone();
    for entry in &mut backends.entries {
        let Some(own) = entry.value.table_mut() else {
            continue;
        };
        match whole(own, &written) {
            Ok(Some(table)) => *own = table,
            Ok(None) => {}
            Err(fault) => faults.push(fault),
        }
    }
    faults
}

/// A table with the keys of those that it is like; none where it is like no other.
fn whole(own: &Table, all: &Table) -> Result<Option<Table>, Unlike> {
    let mut chain = vec![own.clone()];
    while let Some((name, at)) = chain.last().and_then(like) {
        let fault = |is_cycle| Unlike {
            at,
            name: name.clone(),
            is_cycle,
        };
        if chain.len() > all.entries.len() {
            return Err(fault(true));
        }
        let base = all.value(&name).and_then(Node::table);
        let base = base.ok_or_else(|| fault(false))?;
        chain.push(base.clone());
    }
    if chain.len() == 1 {
        return Ok(None);
    }
    let mut merged = Table::default();
    for mut table in chain.into_iter().rev() {
        table.remove(LIKE);
        merge::overlay(&mut merged, table);
    }
    Ok(Some(merged))
}

fn like(table: &Table) -> Option<(String, At)> {
    let node = table.value(LIKE)?;
    match &node.raw {
        Raw::Text(name) => Some((name.clone(), node.at)),
        // Reported where keys of backends are read.
        _ => None,
    }
}

/// Reports backends that are like none.
pub(crate) fn report(cx: &mut Context<'_>, faults: Vec<Unlike>, root: &Node) {
    let entries = root.get(BACKENDS).map_or(&[][..], Node::entries).iter();
    let known: Vec<&str> = entries.map(|entry| entry.key.as_str()).collect();
    for fault in faults {
        let message = match fault.is_cycle {
            true => format!("`backend.{}` is like itself", fault.name),
            false => format!("there is no `backend.{}` in this manifest", fault.name),
        };
        let report = cx.report(Code::UnknownName, fault.at, message);
        if !fault.is_cycle {
            report.help(suggest::among(&fault.name, "backends", &known));
        }
    }
}
