//! One step in the making: the state that becomes the next one, what it breaks, what it shows, and its words for a trace.

use crate::{
    model::Protocol,
    mutations::Mutation,
    names::{Intent, Op, Outcome},
    properties::Rule,
    register::KeyState,
    witness::Witness,
    world::World,
};

/// A step from one state to the next.
pub struct Step<'m> {
    /// The rules that apply.
    pub protocol: &'m Protocol,
    /// The next state.
    pub world: World,
    /// What happens, in words; only when somebody reads it.
    story: Option<Vec<String>>,
}

impl<'m> Step<'m> {
    /// A step that nobody reads.
    pub fn new(protocol: &'m Protocol, world: &World) -> Self {
        Self { protocol, world: World { shown: 0, ..world.clone() }, story: None }
    }

    /// A step for a trace.
    pub fn told(protocol: &'m Protocol, world: &World) -> Self {
        Self { story: Some(Vec::new()), ..Self::new(protocol, world) }
    }

    /// The next state, and the words.
    pub fn end(mut self) -> (World, Vec<String>) {
        self.world.normalise();
        (self.world, self.story.unwrap_or_default())
    }

    /// Says what happens.
    pub fn say(&mut self, words: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(words());
        }
    }

    /// Is this rule left out?
    pub fn is_mutated(&self, mutation: Mutation) -> bool {
        self.protocol.mutation == Some(mutation)
    }

    /// Something worth seeing.
    pub fn show(&mut self, witness: Witness) {
        self.world.shown |= witness.bit();
    }

    /// A rule is broken by this very step.
    pub fn break_rule(&mut self, rule: Rule) {
        self.world.broken |= rule.bit();
    }

    /// One of the faults happens.
    pub fn fault(&mut self) {
        self.world.left.faults -= 1;
    }

    /// A client is given a final answer.
    pub fn tell_final(&mut self, intent: Intent, outcome: Outcome) {
        self.say(|| format!("the client is answered: {outcome}"));
        if self.world.told.len() <= usize::from(intent.0) {
            self.world.told.resize(usize::from(intent.0) + 1, None);
        }
        let told = &mut self.world.told[usize::from(intent.0)];
        let is_first_or_same = *told.get_or_insert(outcome) == outcome;
        if !is_first_or_same {
            self.break_rule(Rule::OneAnswer);
        }
        self.check_stored();
    }

    /// A client is told that nothing happened, and why.
    pub fn tell_refusal(&mut self, intent: Intent, outcome: Outcome) {
        self.say(|| format!("the client is answered: {outcome}"));
        let operations = 0..self.world.operations.len() as u8;
        if operations.map(Op).any(|op| self.world.intent(op) == intent && self.world.has_effect(op)) {
            self.break_rule(Rule::RefusalsAreTrue);
        }
    }

    /// What is stored is what clients were told.
    pub fn check_stored(&mut self) {
        let Some(key) = &self.world.key else { return };
        let KeyState::Completed(stored) = key.state else { return };
        let told = self.world.told.get(usize::from(self.world.intent(key.op).0)).copied().flatten();
        if told.is_some_and(|told| told != stored) {
            self.break_rule(Rule::OneAnswer);
        }
    }
}
