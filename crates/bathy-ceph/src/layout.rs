//! Which RADOS object holds which part of an image.

/// Size of an image, and how its data lie in objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The image's size.
    pub size_bytes: u64,
    pub(crate) object_bytes: u64,
    pub(crate) stripe_unit: u64,
    pub(crate) stripe_count: u64,
    pub(crate) prefix: String,
}

impl Layout {
    /// The name of the object that holds the byte at `offset`.
    pub fn object(&self, offset: u64) -> String {
        let unit = offset / self.stripe_unit;
        let stripe = unit / self.stripe_count;
        let units_in_object = self.object_bytes / self.stripe_unit;
        let number = stripe / units_in_object * self.stripe_count + unit % self.stripe_count;
        // Images of the old format have shorter numbers.
        let width = if self.prefix.starts_with("rbd_data.") {
            16
        } else {
            12
        };
        format!("{}.{number:0width$x}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(stripe_unit: u64, stripe_count: u64, prefix: &str) -> Layout {
        Layout {
            size_bytes: 1 << 30,
            object_bytes: 4 << 20,
            stripe_unit,
            stripe_count,
            prefix: prefix.to_owned(),
        }
    }

    #[test]
    fn an_object_holds_what_lies_in_its_part_of_the_image() {
        let plain = layout(4 << 20, 1, "rbd_data.10b2");
        assert_eq!(plain.object((4 << 20) - 1), "rbd_data.10b2.0000000000000000");
        assert_eq!(plain.object(171 << 22), "rbd_data.10b2.00000000000000ab");
        let old = layout(4 << 20, 1, "rb.0.10b2.74b0dc51");
        assert_eq!(old.object(171 << 22), "rb.0.10b2.74b0dc51.0000000000ab");
        // Stripes of three units of 64 KiB: an object has 64 of them, a set of three objects 192.
        let striped = layout(64 << 10, 3, "rbd_data.a");
        let number = |unit: u64| striped.object(unit << 16);
        assert_eq!(number(0), "rbd_data.a.0000000000000000");
        assert_eq!(number(5), "rbd_data.a.0000000000000002");
        assert_eq!(number(191), "rbd_data.a.0000000000000002");
        assert_eq!(number(193), "rbd_data.a.0000000000000004");
    }
}
