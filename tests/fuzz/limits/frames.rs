//! gRPC: a length that is announced is not made room for, beyond the limit of a message.

use bytes::{BufMut, Bytes, BytesMut};
use e2e::{Store, World};
use fuzz::{Code, GrpcWire, Method, Schema, frame, runtime};

use crate::measure::{alone, peak};

/// What tonic takes in at most for one message.
const MESSAGE_MAX: usize = 4 * 1024 * 1024;
/// Beside the message: the connection, the spans, the answer; and what the services do meanwhile.
const BESIDE: usize = 2 * 1024 * 1024;

fn announced(length: u32) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(length);
    frame.put_slice(b"abc");
    frame.freeze()
}

#[test]
fn a_frame_that_announces_gigabytes_is_refused_without_them() {
    let _alone = alone();
    let (runtime, schema) = (runtime(), Schema::load());
    let world = runtime.block_on(World::start(Store::Sqlite));
    for (prefix, address) in [("/idem.v1.", world.addresses().idem), ("/orders.v1.", world.addresses().orders)] {
        let wire = runtime.block_on(GrpcWire::connect(address));
        for Method { path, .. } in schema.methods(prefix) {
            for (length, code, most) in [
                (u32::MAX, Code::InvalidArgument, BESIDE),
                (i32::MAX as u32, Code::InvalidArgument, BESIDE),
                (MESSAGE_MAX as u32 + 1, Code::InvalidArgument, BESIDE),
                (MESSAGE_MAX as u32, Code::Internal, MESSAGE_MAX + BESIDE),
            ] {
                let (reply, peak) = peak(|| runtime.block_on(wire.call(&path, &[], announced(length))));
                assert_eq!(reply.code, Some(code), "{path} {length}: {reply:?}");
                assert!(peak <= most, "{path} {length}: {peak} bytes");
            }
            // A message of many small parts is not blown up out of proportion.
            let parts = frame(&[0x12, 0x00].repeat(64 * 1024));
            let (reply, peak) = peak(|| runtime.block_on(wire.call(&path, &[], parts.clone())));
            assert!(!matches!(reply.code, None | Some(Code::Internal | Code::Unknown)), "{path}: {reply:?}");
            assert!(peak <= 128 * parts.len(), "{path}: {peak} bytes for {} of empty parts", parts.len());
        }
    }
    runtime.block_on(world.stop());
}
