//! Capabilities of a step: Docker's default set, and no more than the caller has.

use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets};

/// What Docker leaves to a container that asked for nothing.
const DEFAULT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::AUDIT_WRITE);

/// What a step can have at most.
pub fn wanted(insecure: bool) -> io::Result<CapabilitySet> {
    let permitted = rustix::thread::capabilities(None)?.permitted;
    Ok(if insecure { permitted } else { DEFAULT.intersection(permitted) })
}

/// Shrinks the bounding set: nothing that is executed from here on, set-user-ID programs included, gets more. Needs
/// CAP_SETPCAP, thus comes before the change of the user.
pub fn limit(wanted: CapabilitySet) -> io::Result<()> {
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        if wanted.contains(capability) {
            continue;
        }
        match rustix::thread::capability_is_in_bounding_set(capability) {
            Ok(true) => rustix::thread::remove_capability_from_bounding_set(capability)?,
            Ok(false) => {}
            // Beyond the last one that the kernel knows.
            Err(rustix::io::Errno::INVAL) => break,
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// After the change of the user: root keeps what `limit` left, anybody else has nothing, nobody inherits.
pub fn settle(wanted: CapabilitySet, root: bool) -> io::Result<()> {
    rustix::thread::clear_ambient_capability_set()?;
    let kept = if root { wanted } else { CapabilitySet::empty() };
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}
