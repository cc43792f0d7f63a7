//! Who did the work: instances, and what kind of request they did it for.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::interner::{Interner, Symbol};

/// Name of an instance (a pod, container or process) as operators know it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InstanceId(String);

impl InstanceId {
    /// Takes a name as it is.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An instance of a service, by interned names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstanceKey {
    /// The service.
    pub service: Symbol,
    /// The instance, named by [`identity`].
    pub instance: Symbol,
}

/// What was asked for: the service and operation of a trace's root span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestType {
    /// Service of the root span.
    pub service: Symbol,
    /// Operation of the root span.
    pub operation: Symbol,
}

impl RequestType {
    /// `service/operation`, for people.
    #[must_use]
    pub fn name(self, names: &Interner) -> String {
        format!(
            "{}/{}",
            names.resolve(self.service),
            names.resolve(self.operation)
        )
    }
}

/// Resource attributes that can tell an instance, as found on a span's resource. `None` where
/// the attribute is absent or empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IdentityHints<'a> {
    /// `k8s.pod.name`.
    pub pod_name: Option<&'a str>,
    /// `k8s.pod.uid`.
    pub pod_uid: Option<&'a str>,
    /// `container.id`.
    pub container_id: Option<&'a str>,
    /// `service.instance.id`.
    pub service_instance_id: Option<&'a str>,
    /// `host.name`, or Jaeger's process tag `hostname`.
    pub host_name: Option<&'a str>,
}

/// The one rule for the identity of an instance: the first of `k8s.pod.uid`, `k8s.pod.name`,
/// `container.id`, `service.instance.id`; else `SERVICE@HOST` for `host.name`, because several
/// services share a host; else the service itself.
#[must_use]
pub fn identity<'a>(service: &'a str, hints: &IdentityHints<'a>) -> Cow<'a, str> {
    let named = hints
        .pod_uid
        .or(hints.pod_name)
        .or(hints.container_id)
        .or(hints.service_instance_id);
    match (named, hints.host_name) {
        (Some(name), _) => Cow::Borrowed(name),
        (None, Some(host)) => Cow::Owned(format!("{service}@{host}")),
        (None, None) => Cow::Borrowed(service),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_attribute_names_the_instance() {
        let mut hints = IdentityHints {
            host_name: Some("node1"),
            ..IdentityHints::default()
        };
        assert_eq!(identity("cart", &hints), "cart@node1");
        hints.service_instance_id = Some("cart-0");
        assert_eq!(identity("cart", &hints), "cart-0");
        hints.pod_name = Some("cart-7f-x");
        assert_eq!(identity("cart", &hints), "cart-7f-x");
        hints.pod_uid = Some("0b1c");
        assert_eq!(identity("cart", &hints), "0b1c");
        assert_eq!(identity("cart", &IdentityHints::default()), "cart");
    }
}
