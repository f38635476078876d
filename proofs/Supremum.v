(* The optimum as a supremum, over the real numbers: V, the supremum over strategies of two outcomes a
   round, is the supremum over all analysts; it satisfies Bellman's inequality; and it is the least
   function that does. docs/notes/setwise.md, Theorem B *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From mathcomp.classical Require Import boolp classical_sets.
From mathcomp.analysis Require Import reals.
From dptopk Require Import Game Rounds Setwise Union Optimum Countable.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.
Local Open Scope classical_set_scope.

Section Supremum.
Variable R : realType.
Local Notation cost := (cost R).
Local Notation left_over := (@left_over R).
Local Notation without := (@without R).

Definition worths E (p q : R) : set R := [set v | exists B : strategy E, v = worth B p q].
Definition V E (p q : R) : R := sup (worths E p q).

(* No family that satisfies Bellman's inequality is below a strategy. *)
Lemma worth_below ok W (E : seq cost) (B : strategy E) p q : bounds left_over without ok W -> ok E ->
  0 <= p -> 0 <= q -> worth B p q <= W E p q.
Proof.
case=> okn r1 sW W0 W1 WB; elim: B p q => {E} [E|E c s cE s1 a IHa b IHb] p q okE p0 q0 /=.
  by rewrite /positive le_maxl W1 ?W0.
have ok' := okn _ _ okE cE; have c1 := r1 _ _ okE cE.
have := WB E c p q okE cE p0 q0; rewrite /bellman.
have c0 : 0 <= c.2 by rewrite (le_trans ler01) // ltW.
have s0 : 0 <= s by case/andP: s1 => s1 _; rewrite (le_trans ler01).
case: c.1 => H.
  apply: le_trans (H s s1); have [w1 w2] := weights_pos c1 s1.
  apply: ler_add; apply: ler_wpmul2l => //; [apply: IHa|apply: IHb]; rewrite ?mulr_ge0 //.
apply: le_trans H; have w0 : 0 <= (c.2 + 1)^-1 by rewrite invr_ge0 addr_ge0 ?ler01.
apply: ler_add; apply: ler_wpmul2l => //; [apply: IHa|apply: IHb]; rewrite ?mulr_ge0 //.
Qed.

(* It is at most the weight of P. *)
Lemma worth_le_p (E : seq cost) (B : strategy E) p q : all_above E -> 0 <= p -> 0 <= q -> worth B p q <= p.
Proof.
elim: B p q => {E} [E|E c s cE s1 a IHa b IHb] p q H p0 q0 /=.
  by rewrite /positive le_maxl ler_subl_addr ler_addl q0.
have c1 := H c cE; have H' := all_above_without (c := c) H.
have c0 : 0 <= c.2 by rewrite (le_trans ler01) // ltW.
have s0 : 0 < s by case/andP: s1 => s1 _; rewrite (lt_le_trans ltr01).
have s00 := ltW s0.
have [w1 w2] := weights_pos c1 s1.
case: c.1.
  apply: (@le_trans _ _ ((c.2 - s) / (s * (c.2 - 1)) * (p * s) + (s - 1) / (s * (c.2 - 1)) * (p * s))).
    apply: ler_add; apply: ler_wpmul2l => //; [apply: IHa|apply: IHb]; rewrite ?mulr_ge0 //.
  rewrite le_eqVlt; apply/orP; left; apply/eqP; field.
  by rewrite (gt_eqF s0) gt_eqF // subr_gt0.
have w0 : 0 <= (c.2 + 1)^-1 by rewrite invr_ge0 addr_ge0 ?ler01.
apply: (@le_trans _ _ ((c.2 + 1)^-1 * (p * c.2) + (c.2 + 1)^-1 * p)).
  apply: ler_add; apply: ler_wpmul2l => //; [apply: IHa|apply: IHb]; rewrite ?mulr_ge0 //.
rewrite le_eqVlt; apply/orP; left; apply/eqP; field.
by rewrite gt_eqF // (lt_le_trans ltr01) // ler_addr.
Qed.

Lemma worths_sup (E : seq cost) (p q : R) : all_above E -> 0 <= p -> 0 <= q -> has_sup (worths E p q).
Proof.
move=> H p0 q0; split; first by exists (worth (Halt E) p q); exists (Halt E).
by exists p => v [B ->]; apply: worth_le_p.
Qed.

Lemma V_ge (E : seq cost) (B : strategy E) p q : all_above E -> 0 <= p -> 0 <= q -> worth B p q <= V E p q.
Proof.
move=> H p0 q0; have [_ ub] := worths_sup H p0 q0.
by apply: sup_ub => //; exists B.
Qed.

Lemma V_le (E : seq cost) p q x : (forall B : strategy E, worth B p q <= x) -> V E p q <= x.
Proof.
move=> H; apply: sup_le_ub; first by exists (worth (Halt E) p q); exists (Halt E).
by move=> v [B ->].
Qed.

(* The supremum over strategies is the supremum over all analysts, on any data sets. *)
Theorem V_bounds_every_analyst (D : Type) (nb : D -> D -> Prop) E
  (A : @analyst R cost (@cls R) D nb _ left_over without E) d d' S u :
  all_above E -> nb d d' -> 0 <= u -> Pr A d S <= u * Pr A d' S + V E 1 u.
Proof.
move=> H dd' u0; rewrite -ler_subl_addl -[Pr A d S]mul1r.
apply: (le_trans (value_bounds A d d' S ler01 u0)).
have [B HB] := no_analyst_is_worth_more A H dd' ler01 u0.
by apply: (le_trans HB); apply: V_ge.
Qed.

(* Nothing smaller bounds them all: some analyst comes as near as one likes. *)
Theorem V_is_reached (E : seq cost) (u e : R) : all_above E -> 0 <= u -> 0 < e ->
  exists (A : @analyst R cost (@cls R) bool differ _ left_over without E) S,
    u * Pr A false S + V E 1 u - e < Pr A true S.
Proof.
move=> H u0 e0; have [v [B ->] near] := sup_adherent e0 (worths_sup H ler01 u0).
have [A EA] := every_strategy_is_an_analyst B H.
exists A, (best A true false 1 u).
have := value_attained A true false 1 u; rewrite EA mul1r => Ev.
by rewrite -addrA -ltr_subr_addl -Ev.
Qed.

(* V satisfies Bellman's inequality, and no function that does is smaller. *)
Theorem V_is_a_bound : bounds left_over without (@all_above R) V.
Proof.
have pr (p q : R) : 0 <= p -> 0 <= q -> 0 <= positive p q by move=> *; apply: positive_ge0.
split.
- by move=> E c H _; apply: all_above_without.
- by move=> E c H; apply: H.
- move=> E H; split=> [p q p' q' p0 q0 p'0 q'0|k p q k0 p0 q0].
    apply: V_le => B; apply: (le_trans (worth_add B p q p' q' H)).
    by apply: ler_add; apply: V_ge.
  apply: V_le => B; rewrite worth_hom //; apply: ler_wpmul2l => //; exact: V_ge.
- move=> E p q H p0 q0; apply: le_trans (V_ge (Halt E) H p0 q0); exact: positive_ge0.
- move=> E p q H p0 q0; apply: le_trans (V_ge (Halt E) H p0 q0).
  by rewrite /= /positive le_maxr lexx.
move=> E c p q H cE p0 q0; rewrite /bellman.
have c1 := H c cE; have H' := all_above_without (c := c) H.
have c0 : 0 <= c.2 by rewrite (le_trans ler01) // ltW.
(* two weights times two suprema are at most what pairs of strategies are at most *)
have two x y p1 q1 p2 q2 z : 0 <= x -> 0 <= y -> 0 <= p1 -> 0 <= q1 -> 0 <= p2 -> 0 <= q2 ->
    (forall A B : strategy (without E c), x * worth A p1 q1 + y * worth B p2 q2 <= z) ->
    x * V (without E c) p1 q1 + y * V (without E c) p2 q2 <= z.
  move=> x0 y0 p10 q10 p20 q20 Hz.
  have each t (a b : R) : 0 <= t -> 0 <= a -> 0 <= b -> forall z',
      (forall A : strategy (without E c), t * worth A a b <= z') -> t * V (without E c) a b <= z'.
    move=> t0 a0 b0 z' Ha; have [t00|tn] := eqVneq t 0.
      by have := Ha (Halt _); rewrite t00 !mul0r.
    have tp : 0 < t by rewrite lt_def tn.
    rewrite mulrC -ler_pdivl_mulr //; apply: V_le => A.
    by rewrite ler_pdivl_mulr // mulrC.
  rewrite -ler_subr_addr; apply: (each x p1 q1) => // A.
  have Hy : y * V (without E c) p2 q2 <= z - x * worth A p1 q1.
    by apply: (each y p2 q2) => // B; rewrite ler_subr_addr addrC; apply: Hz.
  by rewrite ler_subr_addr addrC -ler_subr_addr.
case c1' : c.1.
  move=> s s1; have s0 : 0 <= s by case/andP: s1 => s1 _; rewrite (le_trans ler01).
  have [w1 w2] := weights_pos c1 s1.
  apply: two => //; rewrite ?mulr_ge0 // => A B.
  by have := V_ge (Play cE s1 A B) H p0 q0; rewrite /= c1'.
have w0 : 0 <= (c.2 + 1)^-1 by rewrite invr_ge0 addr_ge0 ?ler01.
have one : (1 : R) <= 1 <= c.2 by rewrite lexx /= ltW.
apply: two => //; rewrite ?mulr_ge0 // => A B.
by have := V_ge (Play cE one A B) H p0 q0; rewrite /= c1'.
Qed.

Theorem V_is_the_least ok W E p q : bounds left_over without ok W -> ok E -> 0 <= p -> 0 <= q ->
  V E p q <= W E p q.
Proof. by move=> H okE p0 q0; apply: V_le => B; apply: worth_below H okE p0 q0. Qed.

(* Answers that are whole numbers, without bound: the probability of a set of transcripts is the
   supremum over N of that of its transcripts below N, and no more than the same V bounds it. *)
Section Unbounded.
Variables (D : Type) (nb : D -> D -> Prop) (E0 : seq cost).
Local Notation canalyst := (@canalyst R cost (@ccls R) D nb _ left_over without).
Definition probability E (A : canalyst E) d S : R := sup [set v | exists N, v = PrN N A d S].

Theorem countable_analysts E (A : canalyst E) d d' S u : all_above E -> nb d d' -> 0 <= u ->
  probability A d S <= u * probability A d' S + V E 1 u.
Proof.
move=> H dd' u0; apply: sup_le_ub; first by exists (PrN 0 A d S); exists 0%N.
move=> v [N ->]; apply: (le_trans (countable_outcomes A S N V_is_a_bound H dd' u0)).
rewrite ler_add2r; apply: ler_wpmul2l => //; apply: sup_ub; last by exists N.
by exists 1 => w [M ->]; apply: PrN_le1.
Qed.
End Unbounded.
End Supremum.
