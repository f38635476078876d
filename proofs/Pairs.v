(* Theorem A for finite pairs: costs that are dominated by a pair each, played in any order by an
   adaptive analyst, are bounded by the product of the pairs; neither adaptivity nor order gains anything.
   docs/notes/setwise.md, Theorem A *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From dptopk Require Import Game Groups Failing.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Pairs.
Variable R : realFieldType.
Local Notation atoms := (atoms R).

(* P, Q is dominated by the pair x: no weights make it worth more. *)
Definition dominated (x : atoms) : class R := fun n P Q => forall p q, 0 <= p -> 0 <= q ->
  \sum_i hinge (p * P i) (q * Q i) <= profile x p q.

(* Costs are named by numbers; [pair c] is what dominates cost c. *)
Variables (C : eqType) (pair : C -> atoms).
Hypothesis pair_nneg : forall c, nneg (pair c).
Definition by_pair (c : C) : class R := dominated (pair c).
Definition together (E : seq C) : atoms := foldr (fun c => prod (pair c)) [:: (1, 1)] E.

Lemma together_nneg E : nneg (together E).
Proof. by elim: E => [|c E IH] /=; [rewrite /nneg /= ler01|apply: nneg_prod]. Qed.

Lemma profile_swap (x y m : atoms) p q : profile (prod x (prod y m)) p q = profile (prod y (prod x m)) p q.
Proof.
rewrite !profile_prodC /over.
under eq_bigr do rewrite profile_prodC /over.
under [in RHS]eq_bigr do rewrite profile_prodC /over.
rewrite exchange_big /=; apply: eq_bigr => b _; apply: eq_bigr => a _.
by rewrite !(mulrAC _ b.1) !(mulrAC _ b.2).
Qed.

Lemma profile_congr (x m m' : atoms) p q : (forall a b, profile m a b = profile m' a b) ->
  profile (prod x m) p q = profile (prod x m') p q.
Proof. by move=> e; rewrite !profile_prodC; apply: eq_bigr => a _; apply: e. Qed.

(* The order of a product does not matter. *)
Lemma together_rem E c p q : c \in E ->
  profile (together E) p q = profile (prod (pair c) (together (rem c E))) p q.
Proof.
elim: E p q => [|x E IH] p q //=; rewrite inE.
have [-> //|xc /= cE] := eqVneq c x.
rewrite profile_swap.
by apply: profile_congr => a b; apply: IH.
Qed.

(* One round: what is left is a mixture over which the round is played. *)
Lemma pair_step E c : c \in E -> step_ok by_pair c (profile (together (rem c E))) (profile (together E)).
Proof.
move=> cE n P Q cPQ p q p0 q0; rewrite (together_rem _ _ cE) profile_prod.
have one : step_ok by_pair c (@hinge R) (profile (pair c)) by move=> k P1 Q1 H; apply: H.
exact: (over_step (together_nneg (rem c E)) one cPQ p0 q0).
Qed.
(* Registered costs as in Setwise.v, of any class with a pair. *)
Definition left_of (E : seq C) (c : C) : Prop := c \in E.
Definition leave (E : seq C) (c : C) := rem c E.

Lemma hinge_hom (k p q : R) : 0 <= k -> hinge (k * p) (k * q) = k * hinge p q.
Proof. by move=> k0; rewrite /hinge -mulrBr -{1}(mulr0 k) maxr_pmulr. Qed.

Lemma hinge_q (p q q' : R) : q <= q' -> hinge p q' <= hinge p q.
Proof.
move=> qq; rewrite /hinge le_maxl !le_maxr lexx orbT andbT; apply/orP; left.
by rewrite ler_sub.
Qed.

Lemma hinge_p (p q p' : R) : p <= p' -> hinge p q <= hinge p' q.
Proof.
move=> pp; rewrite /hinge le_maxl !le_maxr lexx orbT andbT; apply/orP; left.
by rewrite ler_sub.
Qed.

Lemma hinge_lip (p q p' : R) : 0 <= p' -> hinge (p + p') q <= hinge p q + p'.
Proof.
move=> p0; rewrite /hinge le_maxl addrAC ler_add2r le_maxr lexx /=.
by rewrite addr_ge0 // le_maxr lexx orbT.
Qed.

Lemma hinge_ge0 (p q : R) : 0 <= hinge p q. Proof. by rewrite /hinge le_maxr lexx orbT. Qed.

Lemma over_nneg (f g : R -> R -> R) (l : atoms) p q : nneg l -> 0 <= p -> 0 <= q ->
  (forall a b, 0 <= a -> 0 <= b -> f a b <= g a b) -> over f l p q <= over g l p q.
Proof.
move=> l0 p0 q0 H; rewrite /over !big_seq; apply: ler_sum => x /(allP l0)/andP[x1 x2].
by apply: H; rewrite mulr_ge0.
Qed.

(* The two sides of a pair are laws: their masses add up to one. *)
Definition whole (l : atoms) := \sum_(x <- l) x.1 = 1 /\ \sum_(x <- l) x.2 = 1.
Hypothesis pair_whole : forall c, whole (pair c).

Lemma prod_whole l m : whole l -> whole m -> whole (prod l m).
Proof.
move=> [l1 l2] [m1 m2]; rewrite /whole /prod !big_allpairs_dep /=; split.
  by under eq_bigr do rewrite -mulr_sumr m1 mulr1; rewrite l1.
by under eq_bigr do rewrite -mulr_sumr m2 mulr1; rewrite l2.
Qed.

Lemma together_whole E : whole (together E).
Proof. by elim: E => [|c E IH] /=; [rewrite /whole !big_seq1|apply: prod_whole]. Qed.

Lemma profile_regular l : nneg l -> whole l -> regular (@profile R l).
Proof.
move=> l0 [l1 l2]; split=> [p q q' p0 q0 qq|p q p' p0 q0 pp|p q p' p0 q0 p'0].
- rewrite /profile /over !big_seq; apply: ler_sum => x /(allP l0)/andP[x1 x2].
  by apply: hinge_q; rewrite ler_wpmul2r.
- rewrite /profile /over !big_seq; apply: ler_sum => x /(allP l0)/andP[x1 x2].
  by apply: hinge_p; rewrite ler_wpmul2r.
rewrite -[p' in X in _ <= X]mulr1 -l1 mulr_sumr /profile /over -big_split !big_seq.
apply: ler_sum => x /(allP l0)/andP[x1 x2] /=.
by rewrite mulrDl; apply: hinge_lip; rewrite mulr_ge0.
Qed.

Lemma profile_sub l p q : whole l -> p - q <= @profile R l p q.
Proof.
move=> [l1 l2]; rewrite -[p in X in X <= _]mulr1 -[q in X in X <= _]mulr1 -{1}l1 -l2.
rewrite !mulr_sumr -sumrB; apply: ler_sum => x _.
by rewrite /hinge le_maxr lexx.
Qed.

Lemma pairs_family : family by_pair left_of leave (fun=> True) (fun E => profile (together E)).
Proof.
split=> //.
- by move=> E p q _ _ _; apply: sumr_ge0 => x _; apply: hinge_ge0.
- by move=> E p q _ _ _; apply: profile_sub; apply: together_whole.
- move=> E k p q _ k0 _ _; rewrite /profile /over mulr_sumr le_eqVlt; apply/orP; left; apply/eqP.
  by apply: eq_bigr => x _; rewrite -!mulrA hinge_hom.
by move=> E c _ cE; apply: pair_step.
Qed.

Theorem pairs_in_any_order (D : Type) (nb : D -> D -> Prop) E
  (A : @analyst R C by_pair D nb (seq C) left_of leave E) d d' S u :
  nb d d' -> 0 <= u -> Pr A d S <= u * Pr A d' S + profile (together E) 1 u.
Proof. by move=> dd' u0; exact: (family_every_play A S pairs_family I dd' u0). Qed.

(* With failures, whose masses add up. *)
Theorem pairs_with_failures (D : Type) (nb : D -> D -> Prop) E m
  (A : @analyst R (C * R) (with_failures by_pair) D nb (seq C * R) (may_fail left_of) (next_fail leave)
     (E, m)) d d' S u :
  0 <= m -> nb d d' -> 0 <= u -> Pr A d S <= u * Pr A d' S + (profile (together E) 1 u + m).
Proof.
move=> m0 dd' u0; apply: (failures pairs_family _ A S I m0 dd' u0) => F _.
by apply: profile_regular; [apply: together_nneg|apply: together_whole].
Qed.
End Pairs.
