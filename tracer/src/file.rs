//! Exported traces from disk: any supported format, gzip or not, single files or directories.
//!
//! Format and compression are told from content, never from the name.

mod sniff;

use std::fmt;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};

use firm_model::{Interner, Span};
use serde::Serialize;

use crate::decode::jaeger_thrift::{self, Protocol};
use crate::decode::{
    DecodeError, Decoded, Position, Reject, jaeger_json, jaeger_proto, nezha_csv, otlp_json,
    otlp_proto, zipkin_json,
};

/// Default bound on the size of one file as it is.
pub const DEFAULT_MAX_BYTES: u64 = 8 << 30;

/// Default bound on the size of one file inflated. Lower, because a small file that inflates to
/// much may be made to harm, and all of it is held in memory.
pub const DEFAULT_MAX_INFLATED_BYTES: u64 = 2 << 30;

/// Deepest nesting of directories that is followed; symbolic links to directories are not.
const MAX_DEPTH: usize = 32;

/// A format of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Jaeger's query API or web page, or Elasticsearch's spans.
    JaegerJson,
    /// OTLP JSON, one object or one a line.
    OtlpJson,
    /// OTLP protobuf, one message.
    OtlpProto,
    /// OTLP protobuf, messages each after its length in four bytes, as the Collector's file
    /// exporter writes.
    OtlpProtoFramed,
    /// Zipkin v2 JSON.
    ZipkinJson,
    /// Nezha's CSV.
    NezhaCsv,
    /// One Jaeger datagram, compact thrift.
    JaegerThriftCompact,
    /// One Jaeger datagram, binary thrift.
    JaegerThriftBinary,
    /// A Jaeger batch as posted over HTTP, binary thrift.
    JaegerThriftBatch,
    /// Jaeger's `PostSpansRequest`.
    JaegerProto,
}

impl Format {
    /// Stable name, the one that reports carry.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::JaegerJson => "jaeger_json",
            Self::OtlpJson => "otlp_json",
            Self::OtlpProto => "otlp_proto",
            Self::OtlpProtoFramed => "otlp_proto_framed",
            Self::ZipkinJson => "zipkin_json",
            Self::NezhaCsv => "nezha_csv",
            Self::JaegerThriftCompact => "jaeger_thrift_compact",
            Self::JaegerThriftBinary => "jaeger_thrift_binary",
            Self::JaegerThriftBatch => "jaeger_thrift_batch",
            Self::JaegerProto => "jaeger_proto",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Bounds on reading.
#[derive(Debug, Clone, Copy)]
pub struct ReadLimits {
    /// Most bytes of one file as it is.
    pub max_bytes: u64,
    /// Most bytes of one compressed file after inflating.
    pub max_inflated_bytes: u64,
}

impl Default for ReadLimits {
    fn default() -> Self {
        Self {
            max_bytes: DEFAULT_MAX_BYTES,
            max_inflated_bytes: DEFAULT_MAX_INFLATED_BYTES,
        }
    }
}

/// What one file gave.
#[derive(Debug, Clone, Serialize)]
pub struct OneFile {
    /// The file.
    pub path: PathBuf,
    /// Its format.
    pub format: Format,
    /// Whether it was compressed.
    pub gzip: bool,
    /// Bytes after inflating.
    pub bytes: u64,
    /// Its spans, refusals and notes.
    pub decoded: Decoded,
    /// Where and why reading ended early, if it did; the spans before were kept.
    pub damage: Option<String>,
}

/// What a path gave.
#[derive(Debug, Default, Serialize)]
pub struct FileReport {
    /// Files that gave spans, in the order read (sorted by path).
    pub files: Vec<OneFile>,
    /// Files of a directory that gave none.
    #[serde(serialize_with = "as_text")]
    pub failed: Vec<FileError>,
    /// Sums over all files.
    pub total: Decoded,
}

fn as_text<S: serde::Serializer>(errors: &[FileError], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(errors.iter().map(ToString::to_string))
}

/// Why a file gave no spans.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It could not be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// It is larger than allowed.
    #[error("{}: larger than {limit} bytes{}", path.display(), if *.inflated { " after inflating" } else { "" })]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The bound.
        limit: u64,
        /// Whether only after inflating.
        inflated: bool,
    },
    /// Its compressed form is broken and nothing before that place could be used.
    #[error("{}: byte {at} of the compressed file: {reason}", path.display())]
    Gzip {
        /// The file.
        path: PathBuf,
        /// Compressed bytes read so far.
        at: u64,
        /// What is wrong.
        reason: String,
    },
    /// It is in no supported format.
    #[error("{}: {at}: {reason}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// Where that shows.
        at: Position,
        /// What it looks like.
        reason: String,
    },
    /// Its content is broken and no span came before.
    #[error("{}: {at}: {reason} (read as {format})", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// Where.
        at: Position,
        /// What is wrong there.
        reason: String,
        /// What it was read as.
        format: Format,
    },
    /// It has spans, and none can be used.
    #[error("{}: {at}: {reason}; none of {count} spans can be used (read as {format})", path.display())]
    NoUsableSpan {
        /// The file.
        path: PathBuf,
        /// The first span refused.
        at: Position,
        /// Why it was.
        reason: Reject,
        /// Spans in the file.
        count: u64,
        /// What it was read as.
        format: Format,
    },
}

/// Reads a file, or all files below a directory in sorted order, with the default limits.
///
/// # Errors
/// The path cannot be read; for a single file also when it gave no span because it is broken or
/// of no supported format. In a directory such files are listed in [`FileReport::failed`].
pub fn read_path(
    path: &Path,
    names: &Interner,
    out: &mut Vec<Span>,
) -> Result<FileReport, FileError> {
    read_path_with(path, ReadLimits::default(), names, out)
}

/// [`read_path`] with limits.
///
/// # Errors
/// See [`read_path`].
pub fn read_path_with(
    path: &Path,
    limits: ReadLimits,
    names: &Interner,
    out: &mut Vec<Span>,
) -> Result<FileReport, FileError> {
    let mut report = FileReport::default();
    if !fs_err::metadata(path)?.is_dir() {
        let file = read_file(path, limits, names, out)?;
        report.total.merge(&file.decoded);
        report.files.push(file);
        return Ok(report);
    }
    for found in walk(path)? {
        match found.and_then(|path| read_file(&path, limits, names, out)) {
            Ok(file) => {
                report.total.merge(&file.decoded);
                report.files.push(file);
            }
            Err(error) => report.failed.push(error),
        }
    }
    Ok(report)
}

/// All regular files below a directory, sorted; errors stand where they arose.
fn walk(root: &Path) -> Result<Vec<Result<PathBuf, FileError>>, FileError> {
    let mut found = Vec::new();
    let mut open = vec![(root.to_owned(), 0)];
    while let Some((dir, depth)) = open.pop() {
        let entries = match fs_err::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if depth == 0 => return Err(error.into()),
            Err(error) => {
                found.push((dir, Some(error.into())));
                continue;
            }
        };
        for entry in entries {
            let path = match entry {
                Ok(entry) => entry.path(),
                Err(error) => {
                    found.push((dir.clone(), Some(error.into())));
                    continue;
                }
            };
            match fs_err::symlink_metadata(&path) {
                Ok(meta) if meta.is_dir() && depth < MAX_DEPTH => open.push((path, depth + 1)),
                Ok(_) if path.is_file() => found.push((path, None)),
                Ok(_) => {}
                Err(error) => found.push((path, Some(error.into()))),
            }
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let found = found.into_iter();
    Ok(found
        .map(|(path, error)| error.map_or(Ok(path), Err))
        .collect())
}

fn read_file(
    path: &Path,
    limits: ReadLimits,
    names: &Interner,
    out: &mut Vec<Span>,
) -> Result<OneFile, FileError> {
    let too_large = |inflated| FileError::TooLarge {
        path: path.to_owned(),
        limit: if inflated {
            limits.max_inflated_bytes
        } else {
            limits.max_bytes
        },
        inflated,
    };
    let mut file = fs_err::File::open(path)?;
    let metadata = file.metadata()?;
    let length = metadata.len();
    if length > limits.max_bytes {
        return Err(too_large(false));
    }
    let unread = |error: std::io::Error| {
        let text = format!("{}: cannot be read: {error}", path.display());
        std::io::Error::new(error.kind(), text)
    };
    if metadata.is_file() && length > jaeger_json::stream::WINDOW as u64 {
        let is_jaeger = |head: &[u8]| sniff::sniff(head) == Ok(Format::JaegerJson);
        let whole = file.file().take(length);
        let streamed = jaeger_json::stream::decode(whole, is_jaeger, names, out).map_err(unread)?;
        if let Some((decoded, bytes)) = streamed.filter(|(decoded, _)| decoded.spans > 0) {
            return Ok(OneFile {
                path: path.to_owned(),
                format: Format::JaegerJson,
                gzip: false,
                bytes,
                decoded,
                damage: None,
            });
        }
        file.rewind()?;
    }
    let mut bytes = Vec::new();
    // Room at once, and for a byte more, so that the end shows without growing. What does not fit
    // into memory shows when it is read.
    let room = usize::try_from(length).map_or(0, |length| length.saturating_add(1));
    let _ = bytes.try_reserve_exact(room);
    // The bound again, because a pipe has no length. `File` itself fills memory that is not
    // cleared before; the error is given the path that it lacks.
    file.file()
        .take(limits.max_bytes.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(unread)?;
    if bytes.len() as u64 > limits.max_bytes {
        return Err(too_large(false));
    }
    let gzip = bytes.starts_with(&[0x1f, 0x8b]);
    let mut gzip_damage = None;
    if gzip {
        let inflated = crate::inflate::gzip(&bytes, limits.max_inflated_bytes);
        bytes = inflated.bytes;
        match inflated.stopped {
            None => {}
            Some(crate::inflate::Stopped::TooLarge) => return Err(too_large(true)),
            Some(crate::inflate::Stopped::Broken { at, reason }) => {
                gzip_damage = Some((at, reason));
            }
        }
    }
    let gzip_error = |(at, reason): (u64, String)| FileError::Gzip {
        path: path.to_owned(),
        at,
        reason,
    };
    let format = match sniff::sniff(&bytes) {
        Ok(format) => format,
        Err(unsupported) => {
            return Err(match gzip_damage {
                Some(damage) => gzip_error(damage),
                None => FileError::Unsupported {
                    path: path.to_owned(),
                    at: unsupported.at,
                    reason: unsupported.reason,
                },
            });
        }
    };
    let result = decode(format, &bytes, names, out);
    let (decoded, broken) = match result {
        Ok(decoded) => (decoded, None),
        Err(DecodeError {
            at,
            reason,
            decoded,
        }) => (*decoded, Some((at, reason))),
    };
    let damage = match (gzip_damage, broken) {
        (Some(damage), _) if decoded.spans == 0 => return Err(gzip_error(damage)),
        (Some((at, reason)), _) => Some(format!("byte {at} of the compressed file: {reason}")),
        (None, Some((at, reason))) if decoded.spans == 0 => {
            return Err(FileError::Broken {
                path: path.to_owned(),
                at,
                reason,
                format,
            });
        }
        (None, Some((at, reason))) => Some(format!("{at}: {reason}")),
        (None, None) => None,
    };
    if let (0, Some((at, reason))) = (decoded.spans, decoded.first_rejected) {
        return Err(FileError::NoUsableSpan {
            path: path.to_owned(),
            at,
            reason,
            count: decoded.rejected.total(),
            format,
        });
    }
    Ok(OneFile {
        path: path.to_owned(),
        format,
        gzip,
        bytes: bytes.len() as u64,
        decoded,
        damage,
    })
}

/// Decodes bytes of a known format.
///
/// # Errors
/// The decoder's.
pub fn decode(
    format: Format,
    bytes: &[u8],
    names: &Interner,
    out: &mut Vec<Span>,
) -> Result<Decoded, DecodeError> {
    match format {
        Format::JaegerJson => jaeger_json::decode(bytes, names, out),
        Format::OtlpJson => otlp_json::decode(bytes, names, out),
        Format::OtlpProto => otlp_proto::decode(bytes, names, out),
        Format::OtlpProtoFramed => otlp_proto::decode_framed(bytes, names, out),
        Format::ZipkinJson => zipkin_json::decode(bytes, names, out),
        Format::NezhaCsv => nezha_csv::decode(bytes, names, out),
        Format::JaegerThriftCompact => {
            jaeger_thrift::decode_datagram(bytes, Protocol::Compact, names, out)
        }
        Format::JaegerThriftBinary => {
            jaeger_thrift::decode_datagram(bytes, Protocol::Binary, names, out)
        }
        Format::JaegerThriftBatch => {
            jaeger_thrift::decode_batch(bytes, Protocol::Binary, names, out)
        }
        Format::JaegerProto => jaeger_proto::decode(bytes, names, out),
    }
}
