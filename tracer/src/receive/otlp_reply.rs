//! Answers of the OTLP/HTTP receiver, in the encoding of the request.
//!
//! Source: OTLP specification, "OTLP/HTTP Response": `ExportTraceServiceResponse` on success and
//! `google.rpc.Status` on failure, in the request's encoding.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};

/// How requests and answers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Proto,
    Json,
}

/// Seconds after which a client that was refused should come again.
const RETRY_SECONDS: &str = "1";

/// Success; says how many spans were refused and why when some were.
pub(super) fn accepted(encoding: Encoding, rejected: u64, why: &str) -> Response<Full<Bytes>> {
    let body = match (encoding, rejected) {
        (Encoding::Proto, 0) => Vec::new(),
        (Encoding::Json, 0) => b"{}".to_vec(),
        (Encoding::Proto, _) => {
            let mut partial = Vec::new();
            field_varint(&mut partial, 1, rejected);
            field_bytes(&mut partial, 2, why.as_bytes());
            let mut response = Vec::new();
            field_bytes(&mut response, 1, &partial);
            response
        }
        (Encoding::Json, _) => serde_json::json!({
            "partialSuccess": {"rejectedSpans": rejected.to_string(), "errorMessage": why}
        })
        .to_string()
        .into_bytes(),
    };
    response(StatusCode::OK, encoding, body)
}

/// Failure, with a message that says what is wrong with the request.
pub(super) fn refused(
    status: StatusCode,
    encoding: Encoding,
    message: &str,
) -> Response<Full<Bytes>> {
    let code = rpc_code(status);
    let body = match encoding {
        Encoding::Proto => {
            let mut body = Vec::new();
            field_varint(&mut body, 1, code);
            field_bytes(&mut body, 2, message.as_bytes());
            body
        }
        Encoding::Json => serde_json::json!({"code": code, "message": message})
            .to_string()
            .into_bytes(),
    };
    let mut response = response(status, encoding, body);
    let headers = response.headers_mut();
    match status {
        StatusCode::METHOD_NOT_ALLOWED => {
            headers.insert(ALLOW, HeaderValue::from_static("POST"));
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_SECONDS));
        }
        _ => {}
    }
    response
}

/// The gRPC code that means the same.
fn rpc_code(status: StatusCode) -> u64 {
    match status.as_u16() {
        400 | 415 => 3,
        404 => 5,
        405 => 12,
        408 => 4,
        413 | 429 => 8,
        503 => 14,
        _ => 13,
    }
}

fn response(status: StatusCode, encoding: Encoding, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = match encoding {
        Encoding::Proto => "application/x-protobuf",
        Encoding::Json => "application/json",
    };
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

fn field_varint(out: &mut Vec<u8>, number: u64, value: u64) {
    varint(out, number << 3);
    varint(out, value);
}

fn field_bytes(out: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    varint(out, number << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
