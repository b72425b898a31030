//! Messages between processes: frames of a length and a body, postcard between processes of ours.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A frame longer than this is a sign of a broken pipe, not of a large message.
const MAX_FRAME_BYTES: u32 = 1 << 30;

/// Writes one frame and flushes.
///
/// # Errors
/// Those of the stream.
pub fn send(stream: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let body = postcard::to_stdvec(message).map_err(io::Error::other)?;
    send_body(stream, &body)
}

/// Writes one frame of these bytes and flushes.
///
/// # Errors
/// Those of the stream.
pub fn send_body(stream: &mut impl Write, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    // One write for short frames: a pipe takes it whole, and the reader wakes once.
    let mut frame = Vec::with_capacity(body.len() + 4);
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(body);
    stream.write_all(&frame)?;
    stream.flush()
}

/// Reads one frame; `None` at the end of the stream.
///
/// # Errors
/// Those of the stream, or a frame that is none.
pub fn receive<T: DeserializeOwned>(stream: &mut impl Read) -> io::Result<Option<T>> {
    let body = receive_body(stream, MAX_FRAME_BYTES)?;
    let message = body.map(|body| postcard::from_bytes(&body));
    message.transpose().map_err(io::Error::other)
}

/// Reads the bytes of one frame, `most` at most; `None` at the end of the stream.
///
/// # Errors
/// Those of the stream, or a frame that is none.
pub fn receive_body(stream: &mut impl Read, most: u32) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        result => result?,
    }
    let length = u32::from_le_bytes(length);
    if length > most {
        return Err(io::Error::other(format!("a frame of {length} bytes")));
    }
    let mut body = vec![0; length as usize];
    stream.read_exact(&mut body)?;
    Ok(Some(body))
}
