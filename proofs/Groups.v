(* Theorem C: costs are split into groups, and the product of bounds of the groups bounds everything.
   docs/notes/setwise.md, "Groups" *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From dptopk Require Import Game.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Groups.
Variable R : realFieldType.

(* A finite pair of (sub)probabilities as its atoms (a, b): masses under P and under Q. *)
Definition atoms := seq (R * R).
Definition nneg (l : atoms) := all (fun x => (0 <= x.1) && (0 <= x.2)) l.
Definition over (f : R -> R -> R) (l : atoms) p q : R := \sum_(x <- l) f (p * x.1) (q * x.2).
Definition hinge (p q : R) := Num.max (p - q) 0.
Definition profile (l : atoms) := over hinge l.
Definition prod (l m : atoms) : atoms := [seq (x.1 * y.1, x.2 * y.2) | x <- l, y <- m].

Lemma profile_prod l m p q : profile (prod l m) p q = over (profile l) m p q.
Proof.
rewrite /profile /over /prod big_allpairs_dep /= exchange_big /=; apply: eq_bigr => y _.
by apply: eq_bigr => x _; rewrite !mulrA !(mulrAC _ y.1) !(mulrAC _ y.2).
Qed.

Lemma profile_prodC l m p q : profile (prod l m) p q = over (profile m) l p q.
Proof.
rewrite /profile /over /prod big_allpairs_dep /=; apply: eq_bigr => y _.
by apply: eq_bigr => x _; rewrite !mulrA.
Qed.

Lemma nneg_prod l m : nneg l -> nneg m -> nneg (prod l m).
Proof.
move=> l0 m0; apply/allP => x /allpairsP[[y z] /= [yl zm ->]] /=.
by move/(allP l0)/andP: yl => [y1 y2]; move/(allP m0)/andP: zm => [z1 z2]; rewrite !mulr_ge0.
Qed.

Variables (C : eqType) (cl : C -> class R).

(* A round of one group leaves the others as they are: they are a mixture over which it is played. *)
Lemma over_step c V V' m : nneg m -> step_ok cl c V V' -> step_ok cl c (over V m) (over V' m).
Proof.
move=> m0 H n P Q cPQ p q p0 q0; rewrite /over exchange_big /= !big_seq.
apply: ler_sum => x /(allP m0)/andP[x1 x2].
apply: le_trans (H _ _ _ cPQ (p * x.1) (q * x.2) _ _); rewrite ?mulr_ge0 //.
rewrite le_eqVlt; apply/orP; left; apply/eqP; apply: eq_bigr => i _.
by rewrite !(mulrAC _ _ x.1) !(mulrAC _ _ x.2).
Qed.

Lemma filter_rem (a : pred C) c (E : seq C) :
  filter a (rem c E) = if a c then rem c (filter a E) else filter a E.
Proof.
elim: E => [|x E IH] /=; first by case: (a c).
have [->|xc] := eqVneq x c; first by case: (a c) => //=; rewrite ?eqxx.
by rewrite /= IH; case: (a c) => //=; case: (a x) => //=; rewrite (negbTE xc).
Qed.

(* [group c] is the number of the group of c; [l i F] the atoms of a bound of group i when F is left
   of it; the product of the first k groups is W k. *)
Variables (group : C -> nat) (l : nat -> seq C -> atoms).
Hypothesis l_nneg : forall i F, nneg (l i F).
Hypothesis l_step : forall i F c, c \in F -> group c = i ->
  step_ok cl c (profile (l i (rem c F))) (profile (l i F)).

Definition of_group i (F : seq C) := filter (fun c => group c == i) F.
Fixpoint product k (F : seq C) : atoms :=
  if k is j.+1 then prod (l j (of_group j F)) (product j F) else [:: (1, 1)].

Lemma product_nneg k F : nneg (product k F).
Proof. by elim: k => [|k IH] /=; [rewrite !ler01|apply: nneg_prod]. Qed.

Lemma product_other k F c : (k <= group c)%N -> product k (rem c F) = product k F.
Proof.
elim: k => [|k IH] //= kc; rewrite IH ?(ltnW kc) // /of_group filter_rem.
by rewrite gtn_eqF.
Qed.

Theorem groups k F c : c \in F -> (group c < k)%N ->
  step_ok cl c (profile (product k (rem c F))) (profile (product k F)).
Proof.
elim: k => [|k IH] //= cF; rewrite ltnS leq_eqVlt => /orP[/eqP ck|ck] n P Q cPQ p q p0 q0.
  rewrite product_other ?ck // /of_group filter_rem ck eqxx.
  under eq_bigr do rewrite profile_prod.
  rewrite profile_prod; apply: over_step cPQ _ _ p0 q0; first exact: product_nneg.
  by apply: l_step => //; rewrite mem_filter ck eqxx.
rewrite /of_group filter_rem ltn_eqF //.
under eq_bigr do rewrite profile_prodC.
by rewrite profile_prodC; apply: over_step cPQ _ _ p0 q0 => //; apply: IH.
Qed.
End Groups.
