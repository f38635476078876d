(* Registered costs in any order, and prices that are spent freely: bounds on every play.
   docs/notes/setwise.md (Theorems A and B), docs/notes/filters.md (Theorem G) *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From dptopk Require Import Game Rounds.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Setwise.
Variable R : realFieldType.

(* (true, r): a bounded range of ln r; (false, r): pure DP of ln r. *)
Definition cost := (bool * R)%type.
Definition cls (c : cost) : class R := if c.1 then BR c.2 else DP c.2.
Definition bellman (c : cost) (W W' : R -> R -> R) p q :=
  if c.1 then forall s, 1 <= s <= c.2 -> chord c.2 s W p q <= W' p q
  else response c.2 W p q <= W' p q.

Lemma bellman_step c (W W' : R -> R -> R) : 1 < c.2 -> sublinear W ->
  (forall p q, 0 <= p -> 0 <= q -> bellman c W W' p q) -> step_ok cls c W W'.
Proof.
move=> r1 sW B n P Q cPQ p q p0 q0; have := B p q p0 q0.
move: cPQ; rewrite /cls /bellman; case: c.1 => cPQ H.
  by have [s [s1]] := BR_step r1 sW cPQ p0 q0; move=> /le_trans; apply; apply: H.
exact: le_trans (DP_step r1 sW cPQ p0 q0) H.
Qed.

(* What is asked of a family of bounds. *)
Record bounds (T : Type) (may : T -> cost -> Prop) (next : T -> cost -> T) (ok : T -> Prop)
    (W : T -> R -> R -> R) : Prop := Bounds {
  ok_next : forall s c, ok s -> may s c -> ok (next s c);
  above_one : forall s c, ok s -> may s c -> 1 < c.2;
  W_sublinear : forall s, ok s -> sublinear (W s);
  W_pos : forall s p q, ok s -> 0 <= p -> 0 <= q -> 0 <= W s p q;
  W_sub : forall s p q, ok s -> 0 <= p -> 0 <= q -> p - q <= W s p q;
  W_bellman : forall s c p q, ok s -> may s c -> 0 <= p -> 0 <= q -> bellman c (W (next s c)) (W s) p q }.

Theorem bounds_every_play T may next ok W (D : Type) (nb : D -> D -> Prop) s
  (A : @analyst R cost cls D nb T may next s) d d' S u :
  bounds may next ok W -> ok s -> nb d d' -> 0 <= u -> Pr A d S <= u * Pr A d' S + W s 1 u.
Proof.
case=> okn r1 sW W0 W1 WB oks dd' u0.
apply: (every_play_delta (ok := ok)) => //.
  by move=> t k p q okt; case: (sW t okt) => _; apply.
move=> t c okt mt; apply: bellman_step; first exact: (r1 t).
  by apply: sW; apply: okn.
by move=> p q p0 q0; apply: WB.
Qed.

(* A registered multiset: a cost may be played if it is left, and is then gone. *)
Definition left_over (E : seq cost) (c : cost) : Prop := c \in E.
Definition without (E : seq cost) (c : cost) := rem c E.

Theorem setwise ok W (D : Type) (nb : D -> D -> Prop) E
  (A : @analyst R cost cls D nb (seq cost) left_over without E) d d' S u :
  bounds left_over without ok W -> ok E -> nb d d' -> 0 <= u ->
  Pr A d S <= u * Pr A d' S + W E 1 u.
Proof. exact: bounds_every_play. Qed.

(* Prices: each cost has a positive whole price, and may be played while enough is left. Costs need
   not be named beforehand, and may depend on all answers. *)
Section Prices.
Variable price : cost -> nat.
Hypothesis price_pos : forall c, (0 < price c)%N.
Definition affordable (n : nat) (c : cost) : Prop := (price c <= n)%N /\ 1 < c.2.
Definition pay (n : nat) (c : cost) := (n - price c)%N.

Variable W : nat -> R -> R -> R.
Hypothesis W_ok : bounds affordable pay (fun=> True) W.

Theorem prices (D : Type) (nb : D -> D -> Prop) n
  (A : @analyst R cost cls D nb nat affordable pay n) d d' S u :
  nb d d' -> 0 <= u -> Pr A d S <= u * Pr A d' S + W n 1 u.
Proof. by move=> dd' u0; exact: (bounds_every_play A S W_ok I dd' u0). Qed.

(* A registration is one way of spending its prices. *)
Definition total (E : seq cost) := sumn (map price E).
Lemma total_rem E c : c \in E -> (total E = price c + total (rem c E))%N.
Proof.
move=> cE; rewrite /total !sumnE !big_map (perm_big _ (perm_to_rem cE)) big_cons //.
Qed.

Corollary prices_of_a_registration (D : Type) (nb : D -> D -> Prop) E
  (A : @analyst R cost cls D nb (seq cost) left_over without E) d d' S u :
  (forall c, c \in E -> 1 < c.2) -> nb d d' -> 0 <= u ->
  Pr A d S <= u * Pr A d' S + W (total E) 1 u.
Proof.
move=> E1 dd' u0; case: W_ok => _ _ sW W0 W1 WB.
pose ok := fun F : seq cost => forall c, c \in F -> 1 < c.2.
apply: (setwise (ok := ok) (W := fun F => W (total F))) => //; split.
- by move=> F c okF cF b /mem_rem; apply: okF.
- by move=> F c okF cF; apply: okF.
- by move=> F _; apply: sW.
- by move=> F p q _; apply: W0.
- by move=> F p q _; apply: W1.
move=> F c p q okF cF p0 q0.
have -> : total (without F c) = pay (total F) c by rewrite /pay (total_rem cF) addKn.
by apply: WB => //; split; [rewrite (total_rem cF) leq_addr|apply: okF].
Qed.
End Prices.

(* In one variable, as the notes and the code have it: h(u), u = e^x, convex, not increasing. *)
Definition convex (h : R -> R) := forall a b x y, 0 <= a -> 0 <= b -> a + b = 1 -> 0 <= x -> 0 <= y ->
  h (a * x + b * y) <= a * h x + b * h y.
Definition decreasing (h : R -> R) := forall x y, 0 <= x -> x <= y -> h y <= h x.
Definition persp (h : R -> R) p q := if p == 0 then 0 else p * h (q / p).

Lemma persp_sublinear h : convex h -> decreasing h -> sublinear (persp h).
Proof.
move=> ch dh; split=> [p q p' q' p0 q0 p'0 q'0|k p q k0 p0 q0]; rewrite /persp.
  have [->|pn] := eqVneq p 0.
    rewrite !add0r; case: eqP => // /eqP p'n; apply: ler_wpmul2l => //.
    by apply: dh; rewrite ?divr_ge0 // ler_wpmul2r ?invr_ge0 // ler_addr.
  have [->|p'n] := eqVneq p' 0.
    rewrite !addr0 ?(negbTE pn); apply: ler_wpmul2l => //.
    by apply: dh; rewrite ?divr_ge0 // ler_wpmul2r ?invr_ge0 // ler_addl.
  have pp : 0 < p by rewrite lt_def pn.
  have pp' : 0 < p' by rewrite lt_def p'n.
  have s0 : 0 < p + p' by rewrite addr_gt0.
  have sn : p + p' != 0 by rewrite gt_eqF.
  rewrite (negbTE sn).
  have -> : (q + q') / (p + p') = p / (p + p') * (q / p) + p' / (p + p') * (q' / p').
    by field; rewrite ?sn ?pn ?p'n.
  have -> : p * h (q / p) + p' * h (q' / p') =
    (p + p') * (p / (p + p') * h (q / p) + p' / (p + p') * h (q' / p')).
    by field; rewrite ?sn ?pn ?p'n.
  apply: ler_wpmul2l; first exact: ltW.
  by apply: ch; rewrite ?divr_ge0 // -?mulrDl ?divff // ltW.
have [->|kn] := eqVneq k 0; first by rewrite !mul0r eqxx.
have [->|pn] := eqVneq p 0; first by rewrite !mulr0 eqxx.
rewrite mulf_eq0 ?(negbTE kn) ?(negbTE pn) /= -mulrA.
by have -> : k * q / (k * p) = q / p by field; rewrite ?kn ?pn.
Qed.

(* Bellman's inequality as docs/notes/setwise.md states it. *)
Definition bellman_h (c : cost) (h h' : R -> R) u :=
  if c.1 then forall s, 1 <= s <= c.2 ->
    (c.2 - s) / (c.2 - 1) * h (u / s) + (s - 1) / (c.2 - 1) * h (u * c.2 / s) <= h' u
  else c.2 / (c.2 + 1) * h (u / c.2) + (c.2 + 1)^-1 * h (u * c.2) <= h' u.

Lemma bellman_persp c h h' p q : 1 < c.2 -> (forall u, 0 <= u -> bellman_h c h h' u) ->
  0 <= p -> 0 <= q -> bellman c (persp h) (persp h') p q.
Proof.
move=> r1 B p0 q0; rewrite /bellman.
have [pe|pn] := eqVneq p 0.
  case: c.1 => [s _|]; rewrite /chord /response /persp pe ?mul0r eqxx ?mulr0 ?addr0 //.
have pp : 0 < p by rewrite lt_def pn.
have r0 : 0 < c.2 by apply: lt_trans r1.
have rn : c.2 != 0 by rewrite gt_eqF.
have r1n : c.2 - 1 != 0 by rewrite gt_eqF // subr_gt0.
have r2n : c.2 + 1 != 0 by rewrite gt_eqF // addr_gt0.
have := B (q / p) (divr_ge0 q0 p0); rewrite /bellman_h; case: c.1 => H.
  move=> s s1r; have s0 : 0 < s by case/andP: s1r => s1 _; apply: lt_le_trans s1.
  have sn : s != 0 by rewrite gt_eqF.
  have := ler_wpmul2l p0 (H s s1r).
  rewrite /chord /persp (negbTE pn) mulf_eq0 (negbTE pn) (negbTE sn) /=.
  have -> : q / p / s = q / (p * s) by field; rewrite ?sn ?pn.
  have -> : q / p * c.2 / s = q * c.2 / (p * s) by field; rewrite ?sn ?pn.
  apply: le_trans; rewrite le_eqVlt; apply/orP; left; apply/eqP.
  move: (h (q / (p * s))) (h (q * c.2 / (p * s))) => a b.
  by field; rewrite ?sn ?r1n.
have := ler_wpmul2l p0 H; rewrite /response /persp (negbTE pn) mulf_eq0 (negbTE pn) (negbTE rn) /=.
have -> : q / p / c.2 = q / (p * c.2) by field; rewrite ?rn ?pn.
have -> : q / p * c.2 = q * c.2 / p by field; rewrite ?pn.
apply: le_trans; rewrite le_eqVlt; apply/orP; left; apply/eqP.
move: (h (q / (p * c.2))) (h (q * c.2 / p)) => a b.
by field; rewrite ?r2n.
Qed.

Record profiles (T : Type) (may : T -> cost -> Prop) (next : T -> cost -> T) (ok : T -> Prop)
    (h : T -> R -> R) : Prop := Profiles {
  pr_next : forall s c, ok s -> may s c -> ok (next s c);
  pr_above : forall s c, ok s -> may s c -> 1 < c.2;
  pr_convex : forall s, ok s -> convex (h s);
  pr_decreasing : forall s, ok s -> decreasing (h s);
  pr_pos : forall s u, ok s -> 0 <= u -> 0 <= h s u;
  pr_sub : forall s u, ok s -> 0 <= u -> 1 - u <= h s u;
  pr_bellman : forall s c u, ok s -> may s c -> 0 <= u -> bellman_h c (h (next s c)) (h s) u }.

Lemma profiles_bounds T may next ok (h : T -> R -> R) :
  profiles may next ok h -> bounds may next ok (fun s => persp (h s)).
Proof.
case=> okn r1 ch dh h0 h1 hB; split=> //.
- by move=> s oks; apply: persp_sublinear; [apply: ch|apply: dh].
- move=> s p q oks p0 q0; rewrite /persp; case: eqP => // _.
  by apply: mulr_ge0 => //; apply: h0; rewrite ?divr_ge0.
- move=> s p q oks p0 q0; rewrite /persp.
  have [->|pn] := eqVneq p 0; first by rewrite sub0r oppr_le0.
  apply: le_trans (ler_wpmul2l p0 (h1 s (q / p) oks _)); last by rewrite divr_ge0.
  by rewrite mulrBr mulr1 mulrCA divff // mulr1.
move=> s c p q oks ms p0 q0; apply: bellman_persp => //; first exact: r1 ms.
by move=> u u0; apply: hB.
Qed.

Theorem profiles_bound_every_play T may next ok (h : T -> R -> R) (D : Type) (nb : D -> D -> Prop) s
  (A : @analyst R cost cls D nb T may next s) d d' S u :
  profiles may next ok h -> ok s -> nb d d' -> 0 <= u -> Pr A d S <= u * Pr A d' S + h s u.
Proof.
move=> H oks dd' u0; have -> : h s u = persp (h s) 1 u by rewrite /persp oner_eq0 divr1 mul1r.
exact: (bounds_every_play A S (profiles_bounds H) oks dd' u0).
Qed.
End Setwise.
