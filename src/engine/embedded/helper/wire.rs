//! Messages over a socket pair: a length, JSON, and for the first message a file descriptor when there is one to give.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// More than any request needs; less than what a garbled length could ask for.
const LIMIT: usize = 1 << 30;

#[derive(Debug)]
pub struct Wire(UnixStream);

impl Wire {
    /// Both ends, closed on exec: an end is given to a child as its standard input and to nobody else.
    pub fn pair() -> io::Result<(Wire, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((Wire(ours), theirs.into()))
    }

    /// Takes the socket that came as standard input, and leaves /dev/null in its place.
    pub fn from_stdin() -> io::Result<Wire> {
        let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        let null = std::fs::File::open("/dev/null")?;
        rustix::stdio::dup2_stdin(null)?;
        Ok(Wire(UnixStream::from(socket)))
    }

    pub fn try_clone(&self) -> io::Result<OwnedFd> {
        Ok(self.0.try_clone()?.into())
    }

    pub fn send<T: Serialize>(&self, message: &T) -> io::Result<()> {
        self.send_with_fd(message, None)
    }

    pub fn send_with_fd<T: Serialize>(&self, message: &T, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let body = serde_json::to_vec(message)?;
        let header = u32::try_from(body.len()).map_err(|_| io::Error::other("message too long"))?.to_le_bytes();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(io::Error::other("no room for a file descriptor"));
        }
        let sent = rustix::net::sendmsg(&self.0, &[IoSlice::new(&header)], &mut control, SendFlags::NOSIGNAL)?;
        let mut socket = &self.0;
        socket.write_all(&header[sent..])?;
        socket.write_all(&body)
    }

    /// None when the other side is gone.
    pub fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<T>> {
        Ok(self.receive_with_fd()?.map(|(message, _)| message))
    }

    pub fn receive_with_fd<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Option<OwnedFd>)>> {
        let mut header = [0u8; 4];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut into = [IoSliceMut::new(&mut header)];
            match rustix::net::recvmsg(&self.0, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other?.bytes,
            }
        };
        if received == 0 {
            return Ok(None);
        }
        let mut fd = None;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                fd = fds.last();
            }
        }
        let mut socket = &self.0;
        socket.read_exact(&mut header[received..])?;
        let length = u32::from_le_bytes(header) as usize;
        if length > LIMIT {
            return Err(io::Error::other("message too long"));
        }
        let mut body = vec![0; length];
        socket.read_exact(&mut body)?;
        Ok(Some((serde_json::from_slice(&body)?, fd)))
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_bounds_and_bring_a_descriptor() {
        let (ours, theirs) = Wire::pair().unwrap();
        let theirs = Wire(UnixStream::from(theirs));
        let (mut reader, writer) = std::io::pipe().unwrap();
        ours.send_with_fd(&"first", Some(writer.as_fd())).unwrap();
        ours.send(&vec![1, 2, 3]).unwrap();
        drop((ours, writer));
        let (first, fd) = theirs.receive_with_fd::<String>().unwrap().unwrap();
        std::fs::File::from(fd.unwrap()).write_all(b"through").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!((first.as_str(), text.as_str()), ("first", "through"));
        assert_eq!(theirs.receive::<Vec<u8>>().unwrap(), Some(vec![1, 2, 3]));
        assert_eq!(theirs.receive::<Vec<u8>>().unwrap(), None);
    }
}
