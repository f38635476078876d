(* The optimum exactly: no analyst is worth more than some strategy of two outcomes a round, and each
   such strategy is an analyst. So the supremum over all analysts is the supremum over strategies,
   which is what docs/notes/setwise.md calls V, and what the recursion of compose computes. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From dptopk Require Import Game Rounds Setwise Union.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Optimum.
Variable R : realFieldType.
Local Notation cost := (cost R).
Local Notation left_over := (@left_over R).
Local Notation without := (@without R).

(* Play a cost with largest loss ln s (of no effect for pure DP), and go on by which of the two
   outcomes came. *)
Inductive strategy : seq cost -> Type :=
| Halt E : strategy E
| Play E c s : left_over E c -> 1 <= s <= c.2 -> strategy (without E c) -> strategy (without E c) ->
    strategy E.

Fixpoint worth E (A : strategy E) (p q : R) : R :=
  match A with
  | Halt _ => positive p q
  | Play _ c s _ _ above below =>
      if c.1 then (c.2 - s) / (s * (c.2 - 1)) * worth above (p * s) q
                + (s - 1) / (s * (c.2 - 1)) * worth below (p * s) (q * c.2)
      else (c.2 + 1)^-1 * worth above (p * c.2) q + (c.2 + 1)^-1 * worth below p (q * c.2)
  end.

Definition all_above (E : seq cost) := forall c, c \in E -> 1 < c.2.
Lemma all_above_without E c : all_above E -> all_above (without E c).
Proof. by move=> H b /mem_rem; apply: H. Qed.

Lemma positive_hom (k p q : R) : 0 <= k -> positive (k * p) (k * q) = k * positive p q :> R.
Proof. by move=> k0; rewrite /positive -mulrBr -{1}(mulr0 k) maxr_pmulr. Qed.

Lemma positive_add (p q p' q' : R) : positive (p + p') (q + q') <= positive p q + positive p' q' :> R.
Proof.
rewrite /positive le_maxl; apply/andP; split; last by rewrite addr_ge0 // le_maxr lexx orbT.
by rewrite opprD addrACA; apply: ler_add; rewrite le_maxr lexx.
Qed.

Lemma worth_hom E (A : strategy E) (k p q : R) : 0 <= k -> worth A (k * p) (k * q) = k * worth A p q.
Proof.
move=> k0; elim: A p q => {E} [E|E c s cE s1 a IHa b IHb] p q /=; first exact: positive_hom.
by case: c.1; rewrite -?[k * _ * _]mulrA !IHa !IHb; ring.
Qed.

Lemma weights_pos (r s : R) : 1 < r -> 1 <= s <= r ->
  0 <= (r - s) / (s * (r - 1)) /\ 0 <= (s - 1) / (s * (r - 1)).
Proof.
move=> r1 /andP[s1 sr]; have s0 : 0 < s by apply: lt_le_trans s1.
by split; apply: divr_ge0; rewrite ?subr_ge0 // mulr_ge0 ?subr_ge0 // ltW.
Qed.

Lemma worth_add E (A : strategy E) (p q p' q' : R) : all_above E ->
  worth A (p + p') (q + q') <= worth A p q + worth A p' q'.
Proof.
elim: A p q p' q' => {E} [E|E c s cE s1 a IHa b IHb] p q p' q' H /=; first exact: positive_add.
have r1 := H c cE; have H' := all_above_without (c := c) H.
have [w1 w2] := weights_pos r1 s1.
have w0 : 0 <= (c.2 + 1)^-1 by rewrite invr_ge0 addr_ge0 // (le_trans ler01) // ltW.
have split2 (x y : R) (f g : R -> R -> R) (p1 q1 p2 q2 p3 q3 p4 q4 : R) : 0 <= x -> 0 <= y ->
    f (p1 + p2) (q1 + q2) <= f p1 q1 + f p2 q2 -> g (p3 + p4) (q3 + q4) <= g p3 q3 + g p4 q4 ->
    x * f (p1 + p2) (q1 + q2) + y * g (p3 + p4) (q3 + q4) <=
    x * f p1 q1 + y * g p3 q3 + (x * f p2 q2 + y * g p4 q4).
  move=> x0 y0 Hf Hg; rewrite addrACA -!mulrDr.
  by apply: ler_add; apply: ler_wpmul2l.
case: c.1; rewrite ![(p + p') * _]mulrDl ![(q + q') * _]mulrDl.
  by apply: (split2 _ _ (worth a) (worth b)) => //; [apply: IHa|apply: IHb].
by apply: (split2 _ _ (worth a) (worth b)) => //; [apply: IHa|apply: IHb].
Qed.

Lemma worth_sublinear E (A : strategy E) : all_above E -> sublinear (worth A).
Proof.
move=> H; split=> [p q p' q' _ _ _ _|k p q k0 _ _]; first exact: worth_add.
by rewrite worth_hom.
Qed.

(* The best of finitely many strategies, at each weights. *)
Section Best.
Variables (E : seq cost) (n : nat) (i0 : 'I_n) (F : 'I_n -> strategy E).
Definition pick p q : 'I_n := [arg max_(i > i0) worth (F i) p q]%O.
Definition most p q := worth (F (pick p q)) p q.
Lemma most_ge i p q : worth (F i) p q <= most p q.
Proof. by rewrite /most /pick; case: arg_maxP => // j _; apply. Qed.
Lemma most_sublinear : all_above E -> sublinear most.
Proof.
move=> H; split=> [p q p' q' _ _ _ _|k p q k0 _ _].
  apply: (le_trans (worth_add _ _ _ _ _ H)).
  by apply: ler_add; apply: most_ge.
rewrite /most worth_hom //; apply: ler_wpmul2l => //; exact: most_ge.
Qed.
End Best.

Lemma law_inhabited n : law R n -> 'I_n.
Proof.
case: n => [|n] P; last exact: ord0.
by have := pr_sum P; rewrite big_ord0 => /esym/eqP; rewrite oner_eq0.
Qed.

Variables (D : Type) (nb : D -> D -> Prop).
Local Notation analyst := (@analyst R cost (@cls R) D nb _ left_over without).

Theorem no_analyst_is_worth_more E (A : analyst E) d d' p q : all_above E -> nb d d' ->
  0 <= p -> 0 <= q -> exists B : strategy E, value A d d' p q <= worth B p q.
Proof.
move=> H dd'; rewrite /value; elim: A H p q => {E} [E|E n w k IH|E c n M cE Mc k IH] H p q p0 q0 /=.
- by exists (Halt E).
- have /fin_all_exists[F HF] : forall i, exists B : strategy E,
    value_in predT (k i) d d' (p * w i) (q * w i) <= worth B (p * w i) (q * w i).
    by move=> i; apply: IH; rewrite ?mulr_ge0 ?pr_ge0.
  exists (F (pick (law_inhabited w) F p q)).
  rewrite -[X in _ <= X]mul1r -(pr_sum w) mulr_suml; apply: ler_sum => i _.
  apply: (le_trans (HF i)); rewrite ![_ * w i]mulrC worth_hom ?pr_ge0 //.
  by apply: ler_wpmul2l; rewrite ?pr_ge0 //; apply: most_ge.
have H' := all_above_without (c := c) H; have r1 := H c cE.
have /fin_all_exists[F HF] : forall i, exists B : strategy (without E c),
    value_in predT (k i) d d' (p * M d i) (q * M d' i) <= worth B (p * M d i) (q * M d' i).
  by move=> i; apply: IH; rewrite ?mulr_ge0 ?pr_ge0.
pose i0 := law_inhabited (M d); pose W := most i0 F.
have sW : sublinear W by apply: most_sublinear.
have up : \sum_i value_in predT (k i) d d' (p * M d i) (q * M d' i)
        <= \sum_i W (p * M d i) (q * M d' i).
  by apply: ler_sum => i _; apply: (le_trans (HF i)); apply: most_ge.
have cP := Mc _ _ dd'; move: cP; rewrite /cls.
case c1 : c.1 => cP.
  have [s [s1 Hs]] := BR_step r1 sW cP p0 q0.
  exists (Play cE s1 (F (pick i0 F (p * s) q)) (F (pick i0 F (p * s) (q * c.2)))).
  by rewrite /= c1; apply: (le_trans up).
have one : (1 : R) <= 1 <= c.2 by rewrite lexx /= ltW.
exists (Play cE one (F (pick i0 F (p * c.2) q)) (F (pick i0 F p (q * c.2)))).
by rewrite /= c1; apply: (le_trans up); apply: DP_step.
Qed.
End Optimum.

Section Attained.
Variable R : realFieldType.

(* Two data sets that are neighbours of each other. *)
Definition differ (d d' : bool) : Prop := d != d'.
Local Notation analyst := (@analyst R (cost R) (@cls R) bool differ _ (@left_over R) (@without R)).

Lemma two_sum (f : 'I_2 -> R) : \sum_i f i = f ord0 + f ord_max.
Proof. by rewrite big_ord_recl big_ord1; congr (_ + f _); apply: val_inj. Qed.

Lemma swap (x y z : R) : x * (y * z) = z * (x * y).
Proof. by ring. Qed.

Theorem every_strategy_is_an_analyst E (B : strategy E) : all_above E ->
  exists A : analyst E, forall p q, value A true false p q = worth B p q.
Proof.
elim: B => {E} [E|E c s cE s1 a IHa b IHb] H; first by exists (Stop _ _ _ _ E).
have H' := all_above_without (c := c) H; have r1 := H c cE.
have [Aa EA] := IHa H'; have [Ab EB] := IHb H'.
pose k (i : 'I_2) := if i == ord0 then Aa else Ab.
case c1 : c.1.
  have [P [Q [cPQ P0 P1 Q0 Q1]]] := BR_pair r1 s1.
  have M_cost : has_cost (@cls R) differ c (fun d : bool => if d then P else Q).
    by move=> [] [] //= _; rewrite /cls c1 //; apply: BR_sym.
  exists (Ask (cls := @cls R) cE M_cost k) => p q.
  rewrite /value /= two_sum /k /= -!/(value _ _ _ _ _) EA EB c1 P0 P1 Q0 Q1.
  have [w1 w2] := weights_pos r1 s1.
  move: w1 w2; move: ((c.2 - s) / _) ((s - 1) / _) => x y x0 y0.
  rewrite -(worth_hom a _ _ x0) -(worth_hom b _ _ y0).
  by congr (_ + _); [congr (worth a _ _)|congr (worth b _ _)]; first [exact: swap | exact: mulrC].
have [P [Q [cPQ P0 P1 Q0 Q1]]] := DP_pair r1.
have M_cost : has_cost (@cls R) differ c (fun d : bool => if d then P else Q).
  by move=> [] [] //= _; rewrite /cls c1 //; apply: DP_sym.
exists (Ask (cls := @cls R) cE M_cost k) => p q.
rewrite /value /= two_sum /k /= -!/(value _ _ _ _ _) EA EB c1 P0 P1 Q0 Q1.
have w0 : 0 <= (c.2 + 1)^-1 by rewrite invr_ge0 addr_ge0 // (le_trans ler01) // ltW.
move: w0; move: (c.2 + 1)^-1 => x x0.
rewrite -(worth_hom a _ _ x0) -(worth_hom b _ _ x0).
by congr (_ + _); [congr (worth a _ _)|congr (worth b _ _)]; first [exact: swap | exact: mulrC].
Qed.
End Attained.
