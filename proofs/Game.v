(* The game of an adaptive analyst, and the theorem that every bound of this library rests on:
   any family of functions that satisfies Bellman's inequality bounds every play.
   docs/notes/setwise.md, docs/notes/filters.md *)
From mathcomp Require Import all_ssreflect all_algebra.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Game.
Variable R : realFieldType.

(* A law on n outcomes; a class is a set of ordered pairs of laws: what one mechanism may do on two
   neighbouring data sets. *)
Record law n := Law {
  pr :> 'I_n -> R;
  pr_ge0 : forall i, 0 <= pr i;
  pr_sum : \sum_i pr i = 1 }.
Definition class := forall n, law n -> law n -> Prop.

Variables (C : Type) (cls : C -> class).            (* costs, and the class of each *)
Variables (D : Type) (nb : D -> D -> Prop).         (* data sets, neighbours *)
Variables (T : Type) (may : T -> C -> Prop) (next : T -> C -> T).
(* T: what is left, such as a multiset of registered costs or a number of prices; a cost may be
   played where [may] holds, and leaves [next]. *)

Definition has_cost c n (M : D -> law n) := forall d d', nb d d' -> cls c (M d) (M d').

(* An analyst stops; or tosses coins of their own; or asks a mechanism M of a cost that may be played,
   sees its answer i, and goes on by that answer. M may depend on all that was seen before. *)
Inductive analyst : T -> Type :=
| Stop s : analyst s
| Toss s n : law n -> ('I_n -> analyst s) -> analyst s
| Ask s c n (M : D -> law n) : may s c -> has_cost c M -> ('I_n -> analyst (next s c)) -> analyst s.

(* The probability that the transcript, the list of coins and answers, lies in the event S. *)
Fixpoint Pr s (A : analyst s) (d : D) (S : seq nat -> bool) : R :=
  match A with
  | Stop _ => (S [::])%:R
  | Toss _ _ w k => \sum_i w i * Pr (k i) d (fun t => S (nat_of_ord i :: t))
  | Ask _ _ _ M _ _ k => \sum_i M d i * Pr (k i) d (fun t => S (nat_of_ord i :: t))
  end.

(* One round: weights p under one data set and q under the other; q stands for e^x. *)
Definition step_ok (c : C) (W W' : R -> R -> R) := forall n (P Q : law n), cls c P Q ->
  forall p q, 0 <= p -> 0 <= q -> \sum_i W (p * P i) (q * Q i) <= W' p q.

(* The bound: at least 0 and p - q, positively homogeneous, and no smaller than any round makes it.
   [ok]: the states of which this is known. *)
Variables (W : T -> R -> R -> R) (ok : T -> Prop).
Hypothesis ok_next : forall s c, ok s -> may s c -> ok (next s c).
Hypothesis W_pos : forall s p q, ok s -> 0 <= p -> 0 <= q -> 0 <= W s p q.
Hypothesis W_sub : forall s p q, ok s -> 0 <= p -> 0 <= q -> p - q <= W s p q.
Hypothesis W_hom : forall s k p q, ok s -> 0 <= k -> 0 <= p -> 0 <= q ->
  W s (k * p) (k * q) <= k * W s p q.
Hypothesis W_step : forall s c, ok s -> may s c -> step_ok c (W (next s c)) (W s).

Theorem every_play s (A : analyst s) d d' S p q : ok s -> nb d d' -> 0 <= p -> 0 <= q ->
  p * Pr A d S - q * Pr A d' S <= W s p q.
Proof.
move=> oks dd'; elim: A oks S p q => {s} [s|s n w k IH|s c n M cs Mc k IH] oks S p q p0 q0 /=.
- by case: (S [::]); rewrite ?mulr1 ?mulr0 ?subrr; [exact: W_sub|exact: W_pos].
- rewrite !mulr_sumr -sumrB -[W s p q]mul1r -(pr_sum w) mulr_suml; apply: ler_sum => i _.
  rewrite !mulrA; apply: (le_trans (IH i oks _ _ _ _ _)); rewrite ?mulr_ge0 ?pr_ge0 //.
  by rewrite ![_ * w i]mulrC; apply: W_hom; rewrite ?pr_ge0.
apply: le_trans (W_step oks cs (Mc _ _ dd') p0 q0).
rewrite !mulr_sumr -sumrB; apply: ler_sum => i _; rewrite !mulrA.
by apply: IH; rewrite ?mulr_ge0 ?pr_ge0 //; apply: ok_next.
Qed.

(* As it is used: P(S) <= e^x Q(S) + delta. *)
Corollary every_play_delta s (A : analyst s) d d' S u : ok s -> nb d d' -> 0 <= u ->
  Pr A d S <= u * Pr A d' S + W s 1 u.
Proof.
move=> oks dd' u0; rewrite -ler_subl_addl -[Pr A d S]mul1r.
by apply: every_play => //; apply: ler01.
Qed.
End Game.

(* Failures: a mechanism that behaves as its class says but for a mass of at most dl. Two forms, and
   the masses of all costs add up: [rest] is that of the rounds to come. *)
Section Failures.
Variables (R : realFieldType) (cl : class R) (dl rest : R) (W W' : R -> R -> R).
Hypothesis mono_q : forall p q q', 0 <= p -> 0 <= q -> q <= q' -> W p q' <= W p q.
Hypothesis lip_p : forall p q p', 0 <= p -> 0 <= q -> 0 <= p' -> W (p + p') q <= W p q + p'.
Hypothesis mono_p : forall p q p', 0 <= p -> 0 <= q -> p <= p' -> W p q <= W p' q.
Hypothesis W_hom : forall k p q, 0 <= k -> 0 <= p -> 0 <= q -> W (k * p) (k * q) <= k * W p q.
Hypothesis W_pos : forall p q, 0 <= p -> 0 <= q -> 0 <= W p q.
Hypothesis W'_pos : forall p q, 0 <= p -> 0 <= q -> 0 <= W' p q.
Hypothesis step : step_ok (fun _ : unit => cl) tt W W'.

(* With probability a <= dl anything, else as the class says: (epsilon, delta)-DP has this form. *)
Definition failing : class R := fun n P Q => exists (P1 Q1 P2 Q2 : law R n) a,
  [/\ cl P1 Q1, 0 <= a <= 1, a <= dl,
      forall i, P i = (1 - a) * P1 i + a * P2 i & forall i, Q i = (1 - a) * Q1 i + a * Q2 i].

(* On a set G of outcomes as the class says, up to an excess b of mass at most dl, and no more than b
   elsewhere: mechanisms on unknown domains have this form (Slot.v). *)
Definition good_set : class R := fun n P Q => exists (P1 Q1 : law R n) (b : 'I_n -> R) (G : pred 'I_n),
  [/\ cl P1 Q1, forall i, 0 <= b i, \sum_i b i <= dl,
      forall i, G i -> P i <= P1 i + b i /\ Q1 i <= Q i & forall i, ~~ G i -> P i <= b i].

Lemma with_rest n (P Q : law R n) p q : 0 <= p ->
  \sum_i W (p * P i) (q * Q i) <= W' p q + p * dl ->
  \sum_i (W (p * P i) (q * Q i) + p * P i * rest) <= W' p q + p * (dl + rest).
Proof.
move=> p0 H; rewrite big_split /= -mulr_suml -mulr_sumr pr_sum mulr1 mulrDr addrA.
by rewrite ler_add2r.
Qed.

Lemma failing_step : step_ok (fun _ : unit => failing) tt
  (fun p q => W p q + p * rest) (fun p q => W' p q + p * (dl + rest)).
Proof.
move=> n P Q [P1 [Q1 [P2 [Q2 [a [c1 /andP[a0 a1] ad EP EQ]]]]]] p q p0 q0; apply: with_rest => //.
have b0 : 0 <= 1 - a by rewrite subr_ge0.
apply: (@le_trans _ _ ((1 - a) * (\sum_i W (p * P1 i) (q * Q1 i)) + p * a)); last first.
  apply: ler_add; last by rewrite ler_wpmul2l.
  apply: (@le_trans _ _ ((1 - a) * W' p q)); first by rewrite ler_wpmul2l // step.
  by rewrite ler_pimull ?W'_pos // ler_subl_addr ler_addl.
have -> : p * a = \sum_i p * a * P2 i by rewrite -mulr_sumr pr_sum mulr1.
rewrite mulr_sumr -big_split; apply: ler_sum => i _ /=.
apply: (@le_trans _ _ (W (p * P i) (q * ((1 - a) * Q1 i)))).
  apply: mono_q; rewrite ?mulr_ge0 ?pr_ge0 // ler_wpmul2l // EQ ler_addl.
  by rewrite mulr_ge0 ?pr_ge0.
rewrite EP mulrDr; apply: le_trans (lip_p _ _ _) _; rewrite ?mulr_ge0 ?pr_ge0 //.
rewrite !mulrA ler_add2r.
rewrite (_ : p * (1 - a) * P1 i = (1 - a) * (p * P1 i)); last by rewrite mulrCA mulrA.
rewrite (_ : q * (1 - a) * Q1 i = (1 - a) * (q * Q1 i)); last by rewrite mulrCA mulrA.
by apply: W_hom; rewrite ?mulr_ge0 ?pr_ge0.
Qed.

Lemma good_set_step : step_ok (fun _ : unit => good_set) tt
  (fun p q => W p q + p * rest) (fun p q => W' p q + p * (dl + rest)).
Proof.
move=> n P Q [P1 [Q1 [b [G [c1 b0 bd HG HN]]]]] p q p0 q0; apply: with_rest => //.
apply: (@le_trans _ _ (\sum_i W (p * P1 i) (q * Q1 i) + p * \sum_i b i)); last first.
  by apply: ler_add; [apply: step|rewrite ler_wpmul2l].
rewrite mulr_sumr -big_split; apply: ler_sum => i _ /=.
case: (boolP (G i)) => Gi.
  have [HP HQ] := HG i Gi.
  apply: (@le_trans _ _ (W (p * P i) (q * Q1 i))).
    by apply: mono_q; rewrite ?mulr_ge0 ?pr_ge0 // ler_wpmul2l.
  apply: (@le_trans _ _ (W (p * P1 i + p * b i) (q * Q1 i))).
    by apply: mono_p; rewrite ?mulr_ge0 ?pr_ge0 // -mulrDr ler_wpmul2l.
  by apply: lip_p; rewrite ?mulr_ge0 ?pr_ge0.
apply: (@le_trans _ _ (W 0 0 + p * P i)).
  apply: (@le_trans _ _ (W (0 + p * P i) 0)).
    by rewrite add0r; apply: mono_q; rewrite ?mulr_ge0 ?pr_ge0.
  by apply: lip_p; rewrite ?mulr_ge0 ?pr_ge0.
apply: ler_add; last by rewrite ler_wpmul2l // HN.
apply: (@le_trans _ _ 0); last by rewrite W_pos ?mulr_ge0 ?pr_ge0.
by have := W_hom (lexx 0) (lexx 0) (lexx 0); rewrite !mul0r.
Qed.
End Failures.
