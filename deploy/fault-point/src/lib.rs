//! Named points at which a debug build can be made to fail or die; nothing in a release build.
//!
//! ```
//! use fault_point::fault_point;
//!
//! async fn charge() -> Result<u32, &'static str> {
//!     fault_point!("charge: send" => Err("nothing was sent"));
//!     let charged = 1000; // … awaited
//!     fault_point!("charge: answered" => Err("it was sent, and the answer is lost"));
//!     Ok(charged)
//! }
//!
//! # tokio_less(async {
//! let watch = fault_point::watch();
//! assert_eq!(charge().await, Ok(1000));
//! // Which points lie on the way?
//! let crossed: Vec<_> = watch.stop().crossed.into_iter().map(|it| it.to_string()).collect();
//! assert_eq!(crossed, ["charge: send#1", "charge: answered#1"]);
//! // And what if it breaks at the second?
//! watch.arm(["charge: answered#1=fail".parse().unwrap()]);
//! assert_eq!(charge().await, Err("it was sent, and the answer is lost"));
//! assert!(watch.stop().is_spent);
//! # });
//! # fn tokio_less(work: impl Future) {
//! #     let mut work = std::pin::pin!(work);
//! #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
//! #     assert!(work.as_mut().poll(&mut context).is_ready());
//! # }
//! ```
//!
//! Points lie at the seams: around every call that leaves a process or reaches a store. So each `.await` of a use case is at one, also
//! of a use case that is written tomorrow. A test runs a scenario once to learn which points it crosses, then once for each of them
//! with a fault there, and looks at the end.
//!
//! What can happen at a point is an [`Action`]: it fails, as the call that it stands for would; the task dies there, with everything
//! that it had in memory; or the whole process is killed. The last is for real processes, which are told by the environment:
//! `IDEM_FAULT_POINT="settle payment: committed#2=kill"` kills at the second crossing of that point.
//!
//! # Why not the `fail` crate
//!
//! It is compiled out by a cargo feature, and features are unified: one crate of a workspace that asks for it puts the points into the
//! release build of all. Here the profile decides (`debug_assertions`), which is the same for the whole build. Its actions are strings
//! in a global table that any test may change under another; here they are values, armed by the one test that holds the [`Watch`].
//! And it cannot say which points were crossed, which is what makes a test of *all* of them possible.

#[cfg(debug_assertions)]
mod plan;
#[cfg(debug_assertions)]
mod watch;

#[cfg(debug_assertions)]
pub use self::{
    plan::{Action, Plan, PlanError},
    watch::{Crossed, Crossing, Watch, watch},
};

#[cfg(debug_assertions)]
#[doc(hidden)]
pub use self::watch::cross;

/// A point of this name; the words after `=>` are what the function returns when it is to fail here. Without them there is nothing
/// that can fail (a pause), and only dying is possible.
#[cfg(debug_assertions)]
#[macro_export]
macro_rules! fault_point {
    ($name:literal $(, $part:expr)*) => {
        $crate::cross(::core::format_args!($name $(, $part)*), false);
    };
    ($name:literal $(, $part:expr)* => $failed:expr) => {
        if $crate::cross(::core::format_args!($name $(, $part)*), true) {
            return $failed;
        }
    };
}

/// Nothing, in this build; the parts are still checked by the compiler.
#[cfg(not(debug_assertions))]
#[macro_export]
macro_rules! fault_point {
    ($name:literal $(, $part:expr)*) => {
        if false {
            let _ = ::core::format_args!($name $(, $part)*);
        }
    };
    ($name:literal $(, $part:expr)* => $failed:expr) => {
        if false {
            let _ = ::core::format_args!($name $(, $part)*);
            return $failed;
        }
    };
}
