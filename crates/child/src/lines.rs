//! One JSON value a line, over pipes.

use std::io::{BufRead, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest line that is read, in bytes: more is a mistake, not a configuration.
pub(crate) const MAX_LINE: u64 = 1 << 20;

/// Why a line could not be sent or read.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The other side has closed the pipe.
    #[error("the other side has ended")]
    Closed,
    /// Nothing came in time.
    #[error("no line within {0:?}")]
    Late(std::time::Duration),
    /// The pipe failed.
    #[error("pipe failed")]
    Pipe(#[from] std::io::Error),
    /// The line is not the JSON that was expected.
    #[error("line `{line}` is not what was expected")]
    Json {
        /// The line, shortened.
        line: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// Reads one line and parses it.
///
/// # Errors
/// See [`LineError`].
pub fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> Result<T, LineError> {
    let mut line = String::new();
    std::io::Read::take(&mut *from, MAX_LINE).read_line(&mut line)?;
    if line.is_empty() {
        return Err(LineError::Closed);
    }
    parse(&line)
}

pub(crate) fn parse<T: DeserializeOwned>(line: &str) -> Result<T, LineError> {
    serde_json::from_str(line).map_err(|source| LineError::Json {
        line: line.trim_end().chars().take(120).collect(),
        source,
    })
}

/// Writes one value as a line and flushes.
///
/// # Errors
/// [`LineError::Pipe`], or [`LineError::Json`] for a value that JSON cannot hold.
pub fn send(to: &mut impl Write, value: &impl Serialize) -> Result<(), LineError> {
    let mut line = serde_json::to_vec(value).map_err(|source| LineError::Json {
        line: String::new(),
        source,
    })?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_received_line_by_line() {
        let mut pipe = Vec::new();
        send(&mut pipe, &vec![1, 2]).unwrap();
        send(&mut pipe, &"two\nlines").unwrap();
        let mut from = pipe.as_slice();
        assert_eq!(receive::<Vec<u8>>(&mut from).unwrap(), [1, 2]);
        assert_eq!(receive::<String>(&mut from).unwrap(), "two\nlines");
        assert!(matches!(
            receive::<String>(&mut from),
            Err(LineError::Closed)
        ));
    }

    #[test]
    fn a_wrong_line_is_shown() {
        let error = receive::<u8>(&mut "nonsense\n".as_bytes()).unwrap_err();
        assert!(error.to_string().contains("nonsense"));
    }
}
