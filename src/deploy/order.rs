//! The order in which services are started: that of the file, but each after those that it needs.

use super::definition::Service;
use super::read::Places;
use crate::catalogue::reader::error;
use crate::diag::Diagnostics;
use crate::suggest;

/// `names` has those as well that are wrong, and are no services therefore.
pub(super) fn sorted(services: Vec<(Service, Places)>, names: &[String], problems: &mut Diagnostics) -> Vec<Service> {
    for (service, places) in &services {
        for (after, place) in service.after.iter().zip(&places.after) {
            if *after == service.name {
                problems.push(error(place, format!("`{after}` cannot be started after itself")));
            } else if !names.contains(after) {
                let mut problem = error(place, format!("there is no service `{after}` in this deployment"));
                problem.hint = suggest::hint(after, names.iter().map(String::as_str));
                problems.push(problem);
            }
        }
    }
    let mut left = services;
    let mut done: Vec<Service> = Vec::with_capacity(left.len());
    loop {
        // The first that waits for none of those that are left.
        let free = left.iter().position(|(service, _)| {
            let waits = |after: &String| *after != service.name && left.iter().any(|(other, _)| other.name == *after);
            !service.after.iter().any(waits)
        });
        match free {
            Some(index) => done.push(left.remove(index).0),
            None => break,
        }
    }
    if let Some(place) = left.first().and_then(|(_, places)| places.after.first()) {
        let round = circle(&left).join(" → ");
        problems.push(error(place, format!("these wait for each other: {round}")));
    }
    done
}

/// From the first of those that are left, along the first that each waits for, until one comes again.
fn circle(left: &[(Service, Places)]) -> Vec<String> {
    let mut path: Vec<String> = Vec::new();
    let mut now = left.first().map(|(service, _)| service);
    while let Some(service) = now {
        if let Some(start) = path.iter().position(|name| *name == service.name) {
            path.push(service.name.clone());
            return path.split_off(start);
        }
        path.push(service.name.clone());
        let find = |after: &String| left.iter().map(|(other, _)| other).find(|other| other.name == *after);
        now = service.after.iter().find_map(find);
    }
    path
}
