(* The bounds at Coq's real numbers, in epsilon and x instead of e^epsilon and e^x. *)
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp.analysis Require Import Rstruct.
From Coq Require Import Reals.
From dptopk Require Import Game Rounds Setwise.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Local Notation RR := R_realFieldType.
Definition delta_at (D : Type) (nb : D -> D -> Prop) E
    (A : @analyst RR (cost RR) (@cls RR) D nb _ (@left_over RR) (@without RR) E) (x delta : R) :=
  forall d d' S, nb d d' -> Pr A d S <= exp x * Pr A d' S + delta.

Theorem setwise_real ok (h : seq (cost RR) -> R -> R) (D : Type) (nb : D -> D -> Prop) E
  (A : @analyst RR (cost RR) (@cls RR) D nb _ (@left_over RR) (@without RR) E) x :
  profiles (@left_over RR) (@without RR) ok h -> ok E -> delta_at A x (h E (exp x)).
Proof.
move=> H okE d d' S dd'; apply: (profiles_bound_every_play A S H okE dd').
by apply/RleP; apply: Rlt_le; apply: exp_pos.
Qed.
