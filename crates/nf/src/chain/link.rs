//! The functions that a chain may have, as one type: [`Link`], made by [`chain!`](crate::chain).

use alloc::string::String;

use memory::Memory;

use crate::description::Description;
use crate::function::NetworkFunction;

/// A function of a chain. [`chain!`](crate::chain) implements it for an enum with a variant for each function, so that a chain of any of
/// them is compiled once.
pub trait Link: Clone + Send + Sync + Sized + 'static {
    /// The shared state of any of the functions.
    type Shared<M: Memory>: Send + 'static;

    /// The description of the chains of these functions.
    const DESCRIPTION: Description;

    /// True if any of the functions counts packets by numbers of its own.
    const COUNTS: bool;

    /// True if all that the functions share outlives a run: [`NetworkFunction::KEEPS`].
    const KEEPS: bool;

    /// The function's initial shared state in `memory`.
    fn shared<M: Memory>(&self, memory: &M) -> Self::Shared<M>;

    /// Lets `visit` see the function with its type.
    fn visit<V: Visit>(&self, visit: V) -> V::Answer;

    /// Lets `visit` see the function with its type and with its shared state.
    ///
    /// # Panics
    /// If the shared state is another function's.
    fn visit_with<'a, M: Memory, V: VisitWith<'a, M>>(&self, shared: &'a Self::Shared<M>, visit: V) -> V::Answer;

    /// Prepares this function to replace `old`: [`NetworkFunction::succeed`].
    ///
    /// # Errors
    /// The reason why it can't, as a sentence.
    fn succeed(self, old: &Self) -> Result<Self, String>;

    /// This function with what it has inherited: [`NetworkFunction::inherit`].
    fn inherit(&self, words: &[u64]) -> Option<Self>;

    /// Fits the shared state of `old` to this function: [`NetworkFunction::adopt`].
    fn adopt<M: Memory>(&self, old: &Self, shared: &mut Self::Shared<M>, memory: &M);
}

/// An operation on a function of any type.
pub trait Visit {
    /// The outcome.
    type Answer;

    /// Carries it out on this function.
    fn function<N: NetworkFunction>(self, nf: &N) -> Self::Answer;
}

/// An operation on a function of any type and its shared state.
pub trait VisitWith<'a, M: Memory> {
    /// The outcome.
    type Answer;

    /// Carries it out on this function.
    fn function<N: NetworkFunction>(self, nf: &N, shared: &'a N::Shared<M>) -> Self::Answer;
}

/// Makes the type of the functions that a chain may have, with a variant for each, and the type of their shared state. The functions are
/// `Clone`.
///
/// ```
/// # use memory::Memory;
/// # use millrace_nf::{self as nf, *};
/// # use packet::{Headers, Host};
/// # macro_rules! forwards { ($name:ident) => {
/// #     #[derive(Clone, Debug)] pub struct $name;
/// #     impl NetworkFunction for $name {
/// #         type Meta = Host; type Flow = (); type Shared<M: Memory> = (); type Speed = Plain;
/// #         const DESCRIPTION: Description = Description { name: stringify!($name), summary: "", state: "", sharing: Sharing::Nothing, keys: &[], drop_reasons: &[], recipes: &[] };
/// #         fn packet_set(&self) -> PacketSet { PacketSet::Source }
/// #         fn sizing(&self) -> Sizing { Sizing { flows: 16, flows_v6: 16 } }
/// #         fn shared<M: Memory>(&self, _: &M) {}
/// #         fn meta(&self, headers: &Headers, _: &[u8]) -> Option<Host> { headers.source() }
/// #         fn open<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Host) -> Step<Opened<()>, M> { Ok(Opened::Flow(())) }
/// #         fn packet<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &mut (), _: &Host) -> Step<Verdict, M> { Ok(Verdict::FORWARD) }
/// #     }
/// # } }
/// # forwards!(Guard);
/// # forwards!(Meter);
/// nf::chain! {
///     /// What stands at our edge.
///     pub enum Edge, EdgeShared: "edge", "guards, then meters", &[] => {
///         Guard(Guard),
///         Meter(Meter),
///     }
/// }
///
/// let chain = Chain::<Edge, 16>::new([("guard", Edge::Guard(Guard)), ("meter", Edge::Meter(Meter))], &[]);
/// assert_eq!(chain.unwrap().description().name, "edge");
/// ```
#[macro_export]
macro_rules! chain {
    (
        $(#[$meta:meta])*
        $vis:vis enum $link:ident, $shared:ident: $name:literal, $summary:literal, $keys:expr => {
            $($variant:ident($function:ty)),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        $vis enum $link {
            $(
                #[doc = concat!("The function `", stringify!($function), "`.")]
                $variant($function),
            )+
        }

        /// The shared state of any of the functions.
        #[doc(hidden)]
        $vis enum $shared<M: $crate::memory::Memory> {
            $($variant(<$function as $crate::NetworkFunction>::Shared<M>),)+
        }

        impl $crate::Link for $link {
            type Shared<M: $crate::memory::Memory> = $shared<M>;

            const DESCRIPTION: $crate::Description = $crate::Description {
                name: $name,
                summary: $summary,
                state: "what each of its functions keeps",
                sharing: $crate::Sharing::Nothing,
                keys: $keys,
                drop_reasons: &[],
                recipes: &[],
            };

            const COUNTS: bool = false $(|| <$function as $crate::NetworkFunction>::COUNTS)+;
            const KEEPS: bool = true $(&& (
                <$function as $crate::NetworkFunction>::KEEPS
                    || !<$function as $crate::NetworkFunction>::DESCRIPTION.sharing.is_any()
            ))+;

            fn shared<M: $crate::memory::Memory>(&self, memory: &M) -> $shared<M> {
                match self {
                    $(Self::$variant(nf) => $shared::$variant($crate::NetworkFunction::shared(nf, memory)),)+
                }
            }

            #[inline]
            fn visit<V: $crate::Visit>(&self, visit: V) -> V::Answer {
                match self {
                    $(Self::$variant(nf) => visit.function(nf),)+
                }
            }

            #[inline]
            fn visit_with<'a, M: $crate::memory::Memory, V: $crate::VisitWith<'a, M>>(
                &self,
                shared: &'a $shared<M>,
                visit: V,
            ) -> V::Answer {
                match (self, shared) {
                    $((Self::$variant(nf), $shared::$variant(shared)) => visit.function(nf, shared),)+
                    #[allow(unreachable_patterns)]
                    _ => unreachable!("the state is the function's own"),
                }
            }

            fn succeed(self, old: &Self) -> Result<Self, $crate::String> {
                match (self, old) {
                    $((Self::$variant(nf), Self::$variant(old)) => {
                        $crate::NetworkFunction::succeed(nf, old).map(Self::$variant)
                    })+
                    #[allow(unreachable_patterns)]
                    _ => Err($crate::String::from("the functions of a chain can't change while it runs")),
                }
            }

            fn inherit(&self, words: &[u64]) -> Option<Self> {
                match self {
                    $(Self::$variant(nf) => $crate::NetworkFunction::inherit(nf, words).map(Self::$variant),)+
                }
            }

            fn adopt<M: $crate::memory::Memory>(&self, old: &Self, shared: &mut $shared<M>, memory: &M) {
                match (self, old, shared) {
                    $((Self::$variant(nf), Self::$variant(old), $shared::$variant(shared)) => {
                        $crate::NetworkFunction::adopt(nf, old, shared, memory);
                    })+
                    #[allow(unreachable_patterns)]
                    _ => unreachable!("a function is succeeded by one of its kind"),
                }
            }
        }
    };
}
